// CachingAllocator: device memory kept between steps, because cudaMalloc and cudaFree synchronise the device.
// Owns every block it ever made until empty_cache(). A block freed while stream A is current is reused by allocations on
// A only: they run after the work that last used it. Thread-safe; one allocator and one lock per device.
#pragma once
#include <map>
#include <mutex>
#include <vector>

#include "scaffolding/backend/cuda/stream.h"

namespace sf::cuda {

class CachingAllocator {
 public:
  struct Statistics {
    size_t allocated = 0;  // bytes in use now, rounded up to blocks
    size_t max_allocated = 0;
    size_t cached = 0;        // bytes in free blocks
    size_t max_reserved = 0;  // of allocated + cached
    size_t device_calls = 0;  // cudaMalloc calls so far
  };

  static CachingAllocator& of(int device);
  void* allocate(size_t bytes);            // RuntimeError saying asked, free and in use when there is no room
  void release(void* data, size_t bytes);  // bytes as given to allocate
  void empty_cache();                      // waits for the device, then gives free blocks back to it
  void reset_peak();                       // the largest numbers are those of now
  Statistics statistics();

 private:
  // Blocks come in few sizes, so that the next step finds the last one's: multiples of 512 bytes below 1 MiB (what
  // cudaMalloc aligns to at least), of 2 MiB (a page of device memory) above.
  // With SF_CUDA_CACHE=0 nothing is rounded or kept, so that a checker of memory sees where each tensor ends.
  static size_t rounded(size_t bytes);
  void empty_cache_locked();

  int device_ = 0;
  std::mutex mutex_;
  std::map<std::pair<cudaStream_t, size_t>, std::vector<void*>> free_;
  Statistics statistics_;
};

}  // namespace sf::cuda
