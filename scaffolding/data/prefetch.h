// Prefetcher: batches of a Dataset made by worker threads, handed out in the order in which they were asked for.
// The owner submits and takes from one thread; workers touch the dataset only. Samples are decoded one by one, so that
// many workers serve one batch. What is ready but not wanted next is bounded by `max_bytes`.
// The destructor stops and joins.
#pragma once
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

#include "scaffolding/data/dataset.h"

namespace sf::data {

struct PrefetchOptions {
  int64_t num_workers = 0;  // 0: take() does the work
  uint64_t epoch_seed = 0;  // of the samples' random numbers
  int64_t first_position = 0;
  int64_t max_bytes = 0;  // 0: SF_PREFETCH_MB
  bool collate = true;    // else Batch::samples
};

class Prefetcher {
 public:
  Prefetcher(std::shared_ptr<const Dataset> dataset, const PrefetchOptions& options);
  ~Prefetcher();
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  void submit(std::vector<int64_t> indices);
  int64_t pending() const { return int64_t(slots_.size()); }  // submitted, not yet taken
  // True when take() will not wait; waits at most that long. With pending() == 0 it is a RuntimeError.
  bool ready_within(double seconds);
  // The oldest pending batch. Throws what a sample of it threw, with the sample's name before it; broken samples are
  // left out and listed.
  Batch take();
  // RuntimeError when everything that was taken was broken. To be asked at the end of an epoch.
  void check_any_whole() const;

 private:
  struct Slot;
  void work();
  void load(Slot& slot, size_t i);
  void finish(Slot& slot);

  std::shared_ptr<const Dataset> dataset_;
  PrefetchOptions options_;
  std::deque<std::shared_ptr<Slot>> slots_;
  int64_t position_, held_bytes_ = 0, delivered_ = 0;
  std::string first_skipped_;
  bool stop_ = false;
  std::mutex lock_;
  std::condition_variable work_, done_;
  std::vector<std::thread> workers_;
};

}  // namespace sf::data
