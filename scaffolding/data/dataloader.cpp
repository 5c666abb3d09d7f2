#include "scaffolding/data/dataloader.h"

#include <atomic>
#include <map>
#include <mutex>
#include <numeric>
#include <thread>

#include "scaffolding/data/image_dataset.h"
#include "scaffolding/data/prefetch.h"

namespace sf::data {

std::vector<std::vector<int64_t>> bucket_batches(const std::vector<int64_t>& order,
                                                 const std::vector<uint32_t>& bucket_of, int64_t batch_size,
                                                 bool drop_last) {
  std::map<uint32_t, std::vector<int64_t>> open;
  std::vector<std::vector<int64_t>> batches;
  for (int64_t index : order) {
    SF_CHECK_AS(IndexError, index >= 0 && size_t(index) < bucket_of.size(), "bucket_batches: index must be below ",
                bucket_of.size(), ", got ", index);
    auto& batch = open[bucket_of[size_t(index)]];
    batch.push_back(index);
    if (int64_t(batch.size()) == batch_size) batches.push_back(std::exchange(batch, {}));
  }
  if (!drop_last)
    for (auto& [bucket, batch] : open)
      if (!batch.empty()) batches.push_back(std::move(batch));
  return batches;
}

std::vector<uint32_t> buckets_of(const ImageDataset& dataset, const AspectBuckets& buckets, int64_t num_threads) {
  std::vector<uint32_t> out(static_cast<size_t>(dataset.size()));
  std::atomic<int64_t> next{0};
  std::exception_ptr error;
  std::mutex lock;
  auto work = [&] {
    for (int64_t i; (i = next++) < dataset.size();) try {
        io::ImageInfo info;
        try {
          info = dataset.info(i);
        } catch (const NotSupported&) {
          throw;
        } catch (const Error&) {
          info.width = info.height = 1;  // the loader will report and skip it
        }
        bool turned = dataset.options().read.apply_orientation && info.orientation >= 5;
        out[size_t(i)] =
            uint32_t(turned ? buckets.nearest(info.width, info.height) : buckets.nearest(info.height, info.width));
      } catch (...) {
        std::lock_guard guard(lock);
        error = std::current_exception();
        next = dataset.size();
      }
  };
  {
    std::vector<std::jthread> threads;
    for (int64_t i = 1; i < num_threads; ++i) threads.emplace_back(work);
    work();
  }
  if (error) std::rethrow_exception(error);
  return out;
}

DataLoader::DataLoader(DataLoader&&) noexcept = default;
DataLoader& DataLoader::operator=(DataLoader&&) noexcept = default;
DataLoader::~DataLoader() = default;
DataLoader::DataLoader(std::shared_ptr<const Dataset> dataset, DataLoaderOptions options)
    : dataset_(std::move(dataset)), options_(std::move(options)) {
  SF_CHECK(dataset_, "DataLoader: needs a dataset");
  SF_CHECK(dataset_->size() > 0, "DataLoader: the dataset is empty");
  SF_CHECK(options_.batch_size > 0, "DataLoader: batch_size must be positive, got ", options_.batch_size);
  SF_CHECK(options_.num_workers >= 0 && options_.num_workers <= 1024, "DataLoader: num_workers must be 0 to 1024, got ",
           options_.num_workers);
  SF_CHECK(options_.prefetch_factor > 0, "DataLoader: prefetch_factor must be positive, got ",
           options_.prefetch_factor);
  SF_CHECK(!options_.drop_last || options_.buckets || dataset_->size() >= options_.batch_size,
           "DataLoader: drop_last leaves no batch of ", options_.batch_size, " in a dataset of ", dataset_->size());
  if (options_.buckets) {
    auto* images = dynamic_cast<const ImageDataset*>(dataset_.get());
    SF_CHECK_AS(TypeError, images, "DataLoader: buckets need an ImageDataset");
    bucket_of_ = buckets_of(*images, *options_.buckets, options_.num_workers);
  }
}

int64_t DataLoader::size() const {
  auto batches = [&](int64_t samples) {
    return options_.drop_last ? samples / options_.batch_size
                              : (samples + options_.batch_size - 1) / options_.batch_size;
  };
  if (!options_.buckets) return batches(dataset_->size());
  std::vector<int64_t> counts(options_.buckets->sizes().size());
  for (uint32_t b : bucket_of_) ++counts[b];
  return std::accumulate(counts.begin(), counts.end(), int64_t(0),
                         [&](int64_t sum, int64_t n) { return sum + batches(n); });
}

std::vector<int64_t> DataLoader::order(const Generator& generator) const {
  std::vector<int64_t> out(static_cast<size_t>(dataset_->size()));
  if (!generator) {
    std::iota(out.begin(), out.end(), 0);
    return out;
  }
  generator->permutation(out.data(), dataset_->size());
  // torch's RandomSampler draws one more permutation and takes none of it: the next epoch's order depends on that.
  std::vector<int64_t> unused(out.size());
  generator->permutation(unused.data(), dataset_->size());
  return out;
}

void DataLoader::start() {
  auto draw = [](const Generator& g) {
    int64_t v;
    g->integers_natural(kInt64, &v, 1);
    return uint64_t(v);
  };
  // The draws of torch's _BaseDataLoaderIter and RandomSampler, in their order.
  Generator shuffler;
  if (resumes_ && now_.batches > 0) {
    if (options_.shuffle) {
      shuffler = options_.generator ? options_.generator : make_generator();
      shuffler->set_state(now_.order_generator);
    }
  } else {
    if (resumes_ && options_.generator && !now_.generator.empty()) options_.generator->set_state(now_.generator);
    now_ = {};
    now_.epoch_seed = draw(options_.generator ? options_.generator : default_generator());
    if (options_.shuffle) {
      shuffler = options_.generator;
      if (!shuffler) {
        shuffler = make_generator();
        shuffler->manual_seed(draw(default_generator()));
      }
      now_.order_generator = shuffler->get_state();
    }
  }
  resumes_ = false;
  std::vector<int64_t> indices = order(shuffler);
  if (options_.buckets) batches_ = bucket_batches(indices, bucket_of_, options_.batch_size, options_.drop_last);
  else {
    std::vector<uint32_t> one(indices.size());
    batches_ = bucket_batches(indices, one, options_.batch_size, options_.drop_last);
  }
  submitted_ = size_t(now_.batches);
  int64_t position = 0;
  for (size_t i = 0; i < submitted_ && i < batches_.size(); ++i) position += int64_t(batches_[i].size());
  prefetcher_ = std::make_shared<Prefetcher>(
      dataset_, PrefetchOptions{options_.num_workers, now_.epoch_seed, position, options_.prefetch_bytes, true});
}

std::optional<Batch> DataLoader::next() {
  if (!prefetcher_) start();
  for (;;) {
    int64_t ahead = std::max<int64_t>(1, options_.num_workers * options_.prefetch_factor);
    while (submitted_ < batches_.size() && prefetcher_->pending() < ahead) prefetcher_->submit(batches_[submitted_++]);
    if (prefetcher_->pending() == 0) {
      auto done = std::move(prefetcher_);
      batches_.clear();
      ++epoch_;
      now_ = {};
      done->check_any_whole();
      return {};
    }
    Batch b;
    try {
      b = prefetcher_->take();
    } catch (...) {
      stop();
      throw;
    }
    ++now_.batches;
    skipped_ += int64_t(b.skipped.size());
    if (options_.on_skip)
      for (auto& s : b.skipped) options_.on_skip(s);
    if (b.size() > 0) return b;  // else every sample of it is broken
  }
}

void DataLoader::stop() {
  prefetcher_.reset();
  batches_.clear();
  now_ = {};
}

DataLoader::Iterator::Iterator(DataLoader* loader) : loader_(loader) { ++*this; }
DataLoader::Iterator& DataLoader::Iterator::operator++() {
  batch_ = loader_->next();
  return *this;
}
DataLoader::Iterator DataLoader::end() { return {}; }
DataLoader::Iterator DataLoader::begin() {
  if (prefetcher_) stop();
  return Iterator(this);
}

DataLoaderState DataLoader::state() const {
  DataLoaderState s = now_;
  s.epoch = epoch_;
  if (s.batches > 0 || resumes_) return s;
  s.epoch_seed = 0;
  s.order_generator.clear();
  if (options_.generator) s.generator = options_.generator->get_state();
  return s;
}

void DataLoader::load_state(const DataLoaderState& state) {
  SF_CHECK(state.epoch >= 0 && state.batches >= 0 && state.batches <= size(), "DataLoader: the state stands at batch ",
           state.batches, ", an epoch here has ", size());
  SF_CHECK(state.batches == 0 || !options_.shuffle || !state.order_generator.empty(),
           "DataLoader: the state is of a loader without shuffle");
  // refuses bytes that are none
  if (options_.shuffle && state.batches > 0) make_generator()->set_state(state.order_generator);
  stop();
  now_ = state;
  epoch_ = state.epoch;
  resumes_ = true;
}

}  // namespace sf::data
