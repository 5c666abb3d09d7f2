#include "scaffolding/backend/cuda/caching_allocator.h"

#include <algorithm>

#include "scaffolding/core/env.h"
#include "scaffolding/core/error.h"

namespace sf::cuda {

CachingAllocator& CachingAllocator::of(int device) {
  // Never destroyed: tensors with static lifetime may be freed after this library's own statics.
  static CachingAllocator* const all = [] {
    auto* a = new CachingAllocator[kMaxDevices];
    for (int i = 0; i < kMaxDevices; ++i) a[i].device_ = i;
    return a;
  }();
  return all[device];
}

static bool keeps_blocks() {
  static const bool keeps = env::flag("SF_CUDA_CACHE");
  return keeps;
}

size_t CachingAllocator::rounded(size_t bytes) {
  if (!keeps_blocks()) return bytes;
  size_t unit = bytes < (size_t(1) << 20) ? 512 : size_t(2) << 20;
  return (bytes + unit - 1) / unit * unit;
}

void* CachingAllocator::allocate(size_t bytes) {
  if (bytes == 0) return nullptr;
  size_t size = rounded(bytes);
  std::lock_guard lock(mutex_);
  void* data = nullptr;
  auto& blocks = free_[{Stream::current(device_).handle, size}];
  if (!blocks.empty()) {
    data = blocks.back();
    blocks.pop_back();
    statistics_.cached -= size;
  } else {
    DeviceScope scope(device_);
    cudaError_t status = cudaMalloc(&data, size);
    if (status == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      empty_cache_locked();
      status = cudaMalloc(&data, size);
    }
    if (status == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      size_t free = 0, total = 0;
      cudaMemGetInfo(&free, &total);
      constexpr size_t kMiB = size_t(1) << 20;
      fail<RuntimeError>("cuda:", device_, ": out of memory: ", size / kMiB, " MiB were asked for, ", free / kMiB, " of ", total / kMiB, " MiB are free and ",
                         statistics_.allocated / kMiB, " MiB are in tensors of this process");
    }
    check(status, "allocate");
    ++statistics_.device_calls;
  }
  statistics_.allocated += size;
  statistics_.max_allocated = std::max(statistics_.max_allocated, statistics_.allocated);
  statistics_.max_reserved = std::max(statistics_.max_reserved, statistics_.allocated + statistics_.cached);
  return data;
}

void CachingAllocator::release(void* data, size_t bytes) {
  if (!data) return;
  size_t size = rounded(bytes);
  std::lock_guard lock(mutex_);
  statistics_.allocated -= size;
  if (!keeps_blocks()) {
    DeviceScope scope(device_);
    check(cudaFree(data), "free");  // waits for the device
    return;
  }
  free_[{Stream::current(device_).handle, size}].push_back(data);
  statistics_.cached += size;
}

void CachingAllocator::empty_cache() {
  std::lock_guard lock(mutex_);
  empty_cache_locked();
}

void CachingAllocator::empty_cache_locked() {
  DeviceScope scope(device_);
  check(cudaDeviceSynchronize(), "empty_cache");
  for (auto& [key, blocks] : free_)
    for (void* data : blocks) check(cudaFree(data), "empty_cache");
  free_.clear();
  statistics_.cached = 0;
}

void CachingAllocator::reset_peak() {
  std::lock_guard lock(mutex_);
  statistics_.max_allocated = statistics_.allocated;
  statistics_.max_reserved = statistics_.allocated + statistics_.cached;
}

CachingAllocator::Statistics CachingAllocator::statistics() {
  std::lock_guard lock(mutex_);
  return statistics_;
}

}  // namespace sf::cuda
