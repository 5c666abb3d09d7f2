// Scratch: device memory for the length of a call. Freed to the allocator while the kernels that use it may still be
// queued: they run before whatever takes the block next on this stream.
#pragma once
#include "scaffolding/backend/cuda/caching_allocator.h"

namespace sf::cuda {

class Scratch {
 public:
  Scratch(Device device, size_t bytes) : device_(device), data_(CachingAllocator::of(device.index).allocate(bytes)) {}
  ~Scratch() { CachingAllocator::of(device_.index).release(data_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  template <class T> T* as() const { return static_cast<T*>(data_); }

 private:
  Device device_;
  void* data_;
};

}  // namespace sf::cuda
