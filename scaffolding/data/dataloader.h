// DataLoader: batches of a Dataset, epoch after epoch, with PyTorch's arguments and PyTorch's shuffle: the same
// generator seed gives the same order as torch.utils.data.DataLoader.
// Order and augmentation do not depend on num_workers.
//   data::DataLoader loader(dataset, {.batch_size = 32, .shuffle = true, .num_workers = 2});
//   for (data::Batch& batch : loader) step(batch.image, batch.target);
// Used from one thread. Leaving the loop early stops the workers.
#pragma once
#include <functional>
#include <optional>

#include "scaffolding/core/generator.h"
#include "scaffolding/data/dataset.h"
#include "scaffolding/data/transforms.h"

namespace sf::data {

class ImageDataset;
class Prefetcher;

struct DataLoaderOptions {
  int64_t batch_size = 1;
  bool shuffle = false;
  int64_t num_workers = 0;      // threads; 0 decodes in the caller's
  bool drop_last = false;       // the last batch of an epoch when it is not full
  Generator generator;          // of shuffle; the default generator where not given
  int64_t prefetch_factor = 2;  // batches that each worker works ahead
  int64_t prefetch_bytes = 0;   // 0: SF_PREFETCH_MB
  // Every batch holds pictures of one bucket; the dataset must be an ImageDataset with transforms::to_bucket of the
  // same.
  std::optional<AspectBuckets> buckets;
  std::function<void(const Skipped&)> on_skip;  // called for each broken sample, in the caller's thread
};

// Where a loader stands. Restored, it goes on with exactly the batches that were not handed out yet.
struct DataLoaderState {
  int64_t epoch = 0;                     // finished ones
  int64_t batches = 0;                   // handed out in this one
  uint64_t epoch_seed = 0;               // of the epoch under way, when batches > 0
  std::vector<uint8_t> order_generator;  // its state before the epoch's order was drawn, when batches > 0
  std::vector<uint8_t> generator;        // options.generator's state, when batches == 0 and there is one
};

class DataLoader {
 public:
  // ValueError for an empty dataset and impossible arguments.
  DataLoader(std::shared_ptr<const Dataset> dataset, DataLoaderOptions options = {});
  DataLoader(DataLoader&&) noexcept;
  DataLoader& operator=(DataLoader&&) noexcept;
  ~DataLoader();

  int64_t size() const;         // batches of an epoch
  std::optional<Batch> next();  // of the epoch under way, started if there is none; empty at its end
  void stop();                  // ends the epoch under way; its workers are gone when this returns
  int64_t epoch() const { return epoch_; }
  int64_t skipped() const { return skipped_; }  // broken samples so far

  DataLoaderState state() const;
  void load_state(const DataLoaderState& state);  // ValueError where it cannot belong to this loader

  // for (Batch& b : loader): one epoch, from its start or, after load_state, from where that stood.
  class Iterator {
   public:
    Iterator() = default;
    explicit Iterator(DataLoader* loader);
    Batch& operator*() { return *batch_; }
    Batch* operator->() { return &*batch_; }
    Iterator& operator++();
    bool operator==(const Iterator&) const { return !batch_; }

   private:
    DataLoader* loader_ = nullptr;
    std::optional<Batch> batch_;
  };
  Iterator begin();
  Iterator end();

 private:
  void start();
  std::vector<int64_t> order(const Generator& generator) const;

  std::shared_ptr<const Dataset> dataset_;
  DataLoaderOptions options_;
  std::vector<uint32_t> bucket_of_;            // of each sample, where there are buckets
  std::shared_ptr<Prefetcher> prefetcher_;     // nobody else's
  std::vector<std::vector<int64_t>> batches_;  // of the epoch under way
  size_t submitted_ = 0;
  DataLoaderState now_;
  bool resumes_ = false;
  int64_t epoch_ = 0, skipped_ = 0;
};

// The indices `order` in batches of one bucket each: a batch is emitted when its bucket has batch_size samples, and
// what is left over at the end, unless drop_last, in the order of the buckets.
std::vector<std::vector<int64_t>> bucket_batches(const std::vector<int64_t>& order,
                                                 const std::vector<uint32_t>& bucket_of, int64_t batch_size,
                                                 bool drop_last);
// The bucket of each sample, from the headers of the files, read by `num_threads` threads.
// A broken file counts as square.
std::vector<uint32_t> buckets_of(const ImageDataset& dataset, const AspectBuckets& buckets, int64_t num_threads = 1);

}  // namespace sf::data
