// Reports: what kernels found wrong in values (an index out of range) while nobody waited for them. A kernel writes
// into memory that host and GPU both see, and goes on without the wrong value; the next call that waits for the GPU
// raises it as an IndexError that names the op. Thread-safe; one for the process.
#pragma once
#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

namespace sf::cuda {

// What a kernel writes: a value, then both flags.
struct Report {
  int64_t* value;  // a wrong one
  int32_t *raised, *any;
};

class Reports {
 public:
  static Reports& instance();
  // For values of `op` along dimension dim (< 0: of none) that must be below high; the same for equal arguments. op: a
  // literal. It lasts as long as the process: captured graphs write there too.
  Report of(const char* op, int64_t dim, int64_t high);
  // IndexError for one that was raised; what others there are is forgotten with it.
  void raise() {
    int32_t* any = any_.load(std::memory_order_acquire);
    if (any && *static_cast<volatile int32_t*>(any)) [[unlikely]]
      raise_first();
  }

 private:
  static constexpr size_t kMost = 512;  // kinds of checks; what comes later shares the last one
  struct Kind {
    const char* op;
    int64_t dim, high;
  };
  struct Shared;  // pinned
  void raise_first();

  std::mutex mutex_;
  std::vector<Kind> kinds_;
  Shared* shared_ = nullptr;
  std::atomic<int32_t*> any_ = nullptr;
};

// Whether SF_CUDA_CHECK_INDICES lets each check wait, so that an error is that of the call which it is about.
bool checks_wait();

}  // namespace sf::cuda
