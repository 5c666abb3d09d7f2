#include "scaffolding/backend/cuda/pinned_memory.h"

#include <algorithm>
#include <bit>
#include <mutex>

#include "scaffolding/backend/cuda/relaxed.h"
#include "scaffolding/core/env.h"
#include "scaffolding/core/error.h"

namespace sf::cuda {

static bool keeps_blocks() {
  static const bool keeps = env::flag("SF_CUDA_CACHE");
  return keeps;
}

PinnedMemory& PinnedMemory::instance() {
  static auto* const all = new PinnedMemory;  // never destroyed, as the allocators of the devices
  return *all;
}

// Eight sizes between powers of two: batches of nearly equal size share blocks, and at most an eighth is lost.
size_t PinnedMemory::rounded(size_t bytes) {
  size_t step = std::max<size_t>(4096, std::bit_ceil(bytes) / 16);
  return (bytes + step - 1) / step * step;
}

PinnedMemory::Blocks::iterator PinnedMemory::block_with(const void* data) {
  auto* p = static_cast<char*>(const_cast<void*>(data));
  auto at = blocks_.upper_bound(p);
  if (at == blocks_.begin()) return blocks_.end();
  --at;
  return p < at->first + at->second.size && at->second.owners > 0 ? at : blocks_.end();
}

void* PinnedMemory::allocate(size_t bytes) {
  if (bytes == 0) return nullptr;
  size_t size = rounded(bytes);
  std::lock_guard lock(mutex_);
  collect(false);
  auto at = free_.lower_bound(size);
  if (at == free_.end() || at->first > size + size / 8) {
    Relaxed relaxed;
    void* data = nullptr;
    cudaError_t status = cudaHostAlloc(&data, size, cudaHostAllocPortable);
    if (status == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      collect(true);
      give_back_free();
      status = cudaHostAlloc(&data, size, cudaHostAllocPortable);
    }
    if (status == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      fail<RuntimeError>(
          "pin_memory: the system pins no more host memory: ", size >> 10, " KiB asked for, ",
          statistics_.allocated >> 10,
          " KiB are pinned by this process. Pin fewer tensors, or smaller ones (fewer batches ahead in a DataLoader)");
    }
    check(status, "pin_memory");
    statistics_.reserved += size;
    statistics_.max_reserved = std::max(statistics_.max_reserved, statistics_.reserved);
    blocks_[static_cast<char*>(data)].size = size;
    at = free_.emplace(size, static_cast<char*>(data));
  }
  char* data = at->second;
  statistics_.allocated += at->first;
  free_.erase(at);
  blocks_.at(data).owners = 1;
  return data;
}

void PinnedMemory::release(void* data) noexcept {
  if (!data) return;
  std::lock_guard lock(mutex_);
  drop_owner(blocks_.find(static_cast<char*>(data)));
}

void PinnedMemory::drop_owner(Blocks::iterator at) noexcept {
  Block& block = at->second;
  if (--block.owners > 0) return;
  statistics_.allocated -= block.size;
  without_throwing([&] {
    if (keeps_blocks()) return waiting_.push_back(at->first);
    Relaxed relaxed;
    if (copies_done(block, true)) give_back(at);
  });
}

bool PinnedMemory::contains(const void* data) {
  std::lock_guard lock(mutex_);
  return block_with(data) != blocks_.end();
}

std::shared_ptr<const void> PinnedMemory::hold(const void* data) {
  std::lock_guard lock(mutex_);
  auto at = block_with(data);
  if (at == blocks_.end()) return nullptr;
  ++at->second.owners;
  return {at->first, [this](const void* first) {
            std::lock_guard guard(mutex_);
            drop_owner(blocks_.find(static_cast<char*>(const_cast<void*>(first))));
          }};
}

cudaEvent_t PinnedMemory::event_of(int device) {
  auto& idle = events_[device];
  cudaEvent_t event = nullptr;
  if (idle.empty()) {
    check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "copy");
  } else {
    event = idle.back();
    idle.pop_back();
  }
  return event;
}

void PinnedMemory::used_by(const void* data, Stream stream) {
  std::lock_guard lock(mutex_);
  auto at = block_with(data);
  if (at == blocks_.end()) return;
  DeviceScope scope(stream.device);
  auto& event = at->second.copies[{stream.device, stream.handle}];
  if (!event) event = event_of(stream.device);
  check(cudaEventRecord(event, stream.handle), "copy");
}

bool PinnedMemory::copies_done(Block& block, bool wait) noexcept {
  bool done = false;
  without_throwing([&] {
    for (auto at = block.copies.begin(); at != block.copies.end();) {
      auto [device, stream] = at->first;
      DeviceScope scope(device);
      cudaError_t status = wait ? cudaEventSynchronize(at->second) : cudaEventQuery(at->second);
      if (status == cudaErrorNotReady) return;
      check(status, "copy");
      events_[device].push_back(at->second);
      at = block.copies.erase(at);
    }
    done = true;
  });
  return done;
}

void PinnedMemory::collect(bool wait) {
  if (waiting_.empty()) return;
  Relaxed relaxed;
  std::erase_if(waiting_, [&](char* data) {
    Block& block = blocks_.at(data);
    if (!copies_done(block, wait)) return false;
    free_.emplace(block.size, data);
    return true;
  });
}

void PinnedMemory::give_back(Blocks::iterator at) {
  check(cudaFreeHost(at->first), "pin_memory");
  statistics_.reserved -= at->second.size;
  blocks_.erase(at);
}

void PinnedMemory::give_back_free() {
  Relaxed relaxed;
  while (!free_.empty()) {
    Blocks::iterator at = blocks_.find(free_.begin()->second);
    free_.erase(free_.begin());
    give_back(at);
  }
}

void PinnedMemory::empty_cache() {
  std::lock_guard lock(mutex_);
  collect(true);
  give_back_free();
}

PinnedStatistics PinnedMemory::statistics() {
  std::lock_guard lock(mutex_);
  return statistics_;
}

}  // namespace sf::cuda
