#include "scaffolding/data/prefetch.h"

#include <chrono>

#include "scaffolding/core/alone_scope.h"
#include "scaffolding/core/env.h"

namespace sf::data {

struct Prefetcher::Slot {
  std::vector<int64_t> indices;
  int64_t position = 0;  // of the first index in the epoch
  std::vector<Sample> samples;
  std::vector<char> is_broken;
  std::vector<std::string> reasons;  // of the broken ones
  size_t started = 0, finished = 0;  // guarded by the Prefetcher's lock, as all below
  int64_t bytes = 0;
  bool ready = false;
  std::exception_ptr error;  // of the first sample that failed, by its place in the batch
  size_t error_at = 0;
  Batch batch;
};

namespace {

int64_t bytes_of(const Sample& s) {
  return int64_t(s.image ? s.image.nbytes() : 0) + int64_t(s.target ? s.target.nbytes() : 0) +
         int64_t(s.caption.size());
}

// The current exception with the sample's name in front; of the same type for the library's own.
std::exception_ptr named(const std::string& name) {
  std::string what = "DataLoader: " + name + ": ";
  try {
    throw;
  } catch (const TypeError& e) {
    return std::make_exception_ptr(TypeError(what + e.what()));
  } catch (const IndexError& e) {
    return std::make_exception_ptr(IndexError(what + e.what()));
  } catch (const NotSupported& e) {
    return std::make_exception_ptr(NotSupported(what + e.what()));
  } catch (const RuntimeError& e) {
    return std::make_exception_ptr(RuntimeError(what + e.what()));
  } catch (const Error& e) {
    return std::make_exception_ptr(ValueError(what + e.what()));
  } catch (const std::exception& e) {
    return std::make_exception_ptr(RuntimeError(what + e.what()));
  } catch (...) {
    return std::current_exception();
  }
}

}  // namespace

Prefetcher::Prefetcher(std::shared_ptr<const Dataset> dataset, const PrefetchOptions& options)
    : dataset_(std::move(dataset)), options_(options), position_(options.first_position) {
  SF_CHECK(dataset_, "DataLoader: needs a dataset");
  SF_CHECK(options.num_workers >= 0 && options.num_workers <= 1024, "DataLoader: num_workers must be 0 to 1024, got ",
           options.num_workers);
  if (options_.max_bytes <= 0) options_.max_bytes = env::integer("SF_PREFETCH_MB") << 20;
  try {
    for (int64_t i = 0; i < options.num_workers; ++i) workers_.emplace_back([this] { work(); });
  } catch (...) {
    {
      std::lock_guard guard(lock_);
      stop_ = true;
    }
    work_.notify_all();
    for (auto& t : workers_) t.join();
    throw;
  }
}

Prefetcher::~Prefetcher() {
  {
    std::lock_guard guard(lock_);
    stop_ = true;
  }
  work_.notify_all();
  for (auto& t : workers_) t.join();
}

void Prefetcher::submit(std::vector<int64_t> indices) {
  auto slot = std::make_shared<Slot>();
  slot->position = position_;
  position_ += int64_t(indices.size());
  slot->samples.resize(indices.size());
  slot->is_broken.resize(indices.size());
  slot->reasons.resize(indices.size());
  slot->ready = indices.empty();
  slot->indices = std::move(indices);
  {
    std::lock_guard guard(lock_);
    slots_.push_back(std::move(slot));
  }
  work_.notify_all();
}

void Prefetcher::load(Slot& slot, size_t i) {
  int64_t index = slot.indices[i];
  std::exception_ptr error;
  try {
    SampleRandom random(options_.epoch_seed, uint64_t(index), uint64_t(slot.position) + i);
    slot.samples[i] = dataset_->get(index, random);
  } catch (const BrokenSample& e) {
    slot.is_broken[i] = 1;
    slot.reasons[i] = e.what();
  } catch (...) {
    std::string name;
    try {
      name = "'" + dataset_->sample_name(index) + "'";
    } catch (const Error&) {
      name = "index " + std::to_string(index);
    }
    error = named(name);
  }
  int64_t bytes = bytes_of(slot.samples[i]);
  bool last;
  {
    std::lock_guard guard(lock_);
    if (error && (!slot.error || i < slot.error_at)) {
      slot.error = error;
      slot.error_at = i;
    }
    slot.bytes += bytes;
    held_bytes_ += bytes;
    last = ++slot.finished == slot.indices.size();
  }
  if (last) finish(slot);
}

// Nobody else touches the slot's samples any more: all are finished, and it is not ready yet.
void Prefetcher::finish(Slot& slot) {
  std::exception_ptr error;
  if (!slot.error) try {
      std::vector<Sample> good;
      std::vector<Skipped> skipped;
      for (size_t i = 0; i < slot.indices.size(); ++i)
        if (slot.is_broken[i])
          skipped.push_back({slot.indices[i], dataset_->sample_name(slot.indices[i]), slot.reasons[i]});
        else good.push_back(std::move(slot.samples[i]));
      if (options_.collate) slot.batch = collate(std::move(good));
      else {
        for (auto& s : good) slot.batch.index.push_back(s.index);
        slot.batch.samples = std::move(good);
      }
      slot.batch.skipped = std::move(skipped);
    } catch (...) {
      error = std::current_exception();
    }
  slot.samples.clear();
  {
    std::lock_guard guard(lock_);
    if (error) slot.error = error;
    slot.ready = true;
  }
  done_.notify_all();
}

void Prefetcher::work() {
  const AloneScope alone;
  std::unique_lock guard(lock_);
  for (;;) {
    std::shared_ptr<Slot> slot;
    for (auto& s : slots_)
      if (s->started < s->indices.size()) {
        // The batch that is wanted next is always worked on, whatever the others hold.
        if (s == slots_.front() || held_bytes_ < options_.max_bytes) slot = s;
        break;
      }
    if (stop_) return;
    if (!slot) {
      work_.wait(guard);
      continue;
    }
    size_t i = slot->started++;
    guard.unlock();
    load(*slot, i);
    guard.lock();
  }
}

bool Prefetcher::ready_within(double seconds) {
  SF_CHECK_AS(RuntimeError, !slots_.empty(), "DataLoader: no batch is pending");
  if (workers_.empty()) return true;
  std::unique_lock guard(lock_);
  Slot& s = *slots_.front();
  return done_.wait_for(guard, std::chrono::duration<double>(seconds), [&] { return s.ready; });
}

Batch Prefetcher::take() {
  SF_CHECK_AS(RuntimeError, !slots_.empty(), "DataLoader: no batch is pending");
  std::shared_ptr<Slot> slot = slots_.front();
  if (workers_.empty())
    while (slot->started < slot->indices.size()) load(*slot, slot->started++);
  {
    std::unique_lock guard(lock_);
    done_.wait(guard, [&] { return slot->ready; });
    slots_.pop_front();
    held_bytes_ -= slot->bytes;
  }
  work_.notify_all();
  if (slot->error) std::rethrow_exception(slot->error);
  delivered_ += slot->batch.size();
  if (first_skipped_.empty() && !slot->batch.skipped.empty()) first_skipped_ = slot->batch.skipped[0].reason;
  return std::move(slot->batch);
}

void Prefetcher::check_any_whole() const {
  SF_CHECK_AS(RuntimeError, delivered_ > 0 || first_skipped_.empty(),
              "DataLoader: every sample is broken; the first: ", first_skipped_);
}

}  // namespace sf::data
