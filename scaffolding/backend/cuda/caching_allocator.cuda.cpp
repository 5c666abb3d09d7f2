#include "scaffolding/backend/cuda/caching_allocator.h"

#include <algorithm>
#include <functional>
#include <mutex>
#include <sstream>
#include <tuple>

#include "scaffolding/backend/cuda/relaxed.h"
#include "scaffolding/backend/cuda_graph.h"
#include "scaffolding/core/env.h"
#include "scaffolding/core/out_of_memory.h"

namespace sf::cuda {

namespace {

bool keeps_blocks() {
  static const bool keeps = env::flag("SF_CUDA_CACHE");
  return keeps;
}

// In place of a stream that was destroyed.
const cudaStream_t kEnded = reinterpret_cast<cudaStream_t>(~uintptr_t(0));

}  // namespace

bool CachingAllocator::BySize::operator()(const Block* a, const Block* b) const {
  return std::tuple(std::less<>()(a->stream, b->stream) ? -1 : int(a->stream != b->stream), a->size, a->data) <
         std::tuple(0, b->size, b->data);
}

CachingAllocator& CachingAllocator::of(int device) {
  // Never destroyed: tensors with static lifetime may be freed after this library's own statics.
  static CachingAllocator* const all = [] {
    auto* a = new CachingAllocator[kMaxDevices];
    for (int i = 0; i < kMaxDevices; ++i) {
      a[i].device_ = i;
      a[i].pools_[0] = std::make_unique<Pool>();
    }
    return a;
  }();
  return all[device];
}

// With SF_CUDA_CACHE=0 nothing is rounded, split or kept, so that a checker of memory sees where each tensor ends.
size_t CachingAllocator::rounded(size_t bytes) { return keeps_blocks() ? (bytes + kUnit - 1) / kUnit * kUnit : bytes; }

CachingAllocator::Pool& CachingAllocator::pool_of_thread() {
  CudaGraph* graph = CudaGraph::recording();
  return *pools_.at(graph && graph->device().index == device_ ? graph->pool() : 0);
}

CachingAllocator::Block* CachingAllocator::take_free(Pool& pool, size_t size) {
  const cudaStream_t current = Stream::current(device_).handle;
  Block wanted;
  wanted.size = size;
  auto& blocks = pool.free_blocks(size);
  for (cudaStream_t stream : {current, kEnded}) {
    wanted.stream = stream;
    auto at = blocks.lower_bound(&wanted);
    // What a destroyed stream left goes to another as whole segments, so that each of them has one stream.
    while (stream == kEnded && at != blocks.end() && ((*at)->before || (*at)->behind)) ++at;
    if (at == blocks.end() || (*at)->stream != stream) continue;
    if (!keeps_blocks() && (*at)->size != size) continue;
    Block* block = *at;
    blocks.erase(at);
    block->stream = current;
    split(block, size);
    return block;
  }
  return nullptr;
}

// Sizes of segments and of remainders worth keeping are PyTorch's (c10/cuda/CUDACachingAllocator.cpp): 2 MiB for blocks
// up to 1 MiB, 20 MiB for those below 10, else the next multiple of 2 MiB.
CachingAllocator::Block* CachingAllocator::new_segment(Pool& pool, size_t size) {
  size_t bytes = size;
  if (keeps_blocks())
    bytes = size <= kSmall ? 2 * kMiB : size < 10 * kMiB ? 20 * kMiB : (size + 2 * kMiB - 1) / (2 * kMiB) * (2 * kMiB);
  DeviceScope scope(device_);
  void* data = nullptr;
  cudaError_t status;
  auto take = [&] {  // beyond the limit as where the device has no more
    const bool within = statistics_.limit == 0 || statistics_.reserved + bytes <= statistics_.limit;
    return within ? cudaMalloc(&data, bytes) : cudaErrorMemoryAllocation;
  };
  {
    Relaxed relaxed;
    status = take();
    if (status == cudaErrorMemoryAllocation && captures_ == 0) {  // a captured graph forbids waiting
      cudaGetLastError();
      ++statistics_.retries;
      pass_events(true);
      empty_cache_locked();
      status = take();
    }
    if (status == cudaErrorMemoryAllocation && bytes > size) {
      cudaGetLastError();
      bytes = size;
      status = take();
    }
  }
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    fail_out_of_memory(size);
  }
  check(status, "allocate");
  auto block = std::make_unique<Block>();
  block->data = static_cast<char*>(data);
  block->size = bytes;
  block->stream = Stream::current(device_).handle;
  block->pool = &pool;
  statistics_.reserved += bytes;
  statistics_.max_reserved = std::max(statistics_.max_reserved, statistics_.reserved);
  ++statistics_.segments;
  Block* made = block.get();
  blocks_.emplace(data, std::move(block));
  return made;
}

void CachingAllocator::split(Block* block, size_t size) {
  size_t rest = block->size - size;
  if (!keeps_blocks() || rest < (size <= kSmall ? kUnit : kSmall + kUnit)) return;
  auto behind = std::make_unique<Block>();
  behind->data = block->data + size;
  behind->size = rest;
  behind->stream = block->stream;
  behind->pool = block->pool;
  behind->before = block;
  behind->behind = block->behind;
  if (behind->behind) behind->behind->before = behind.get();
  block->behind = behind.get();
  block->size = size;
  // Of the small ones stays what is left of a segment for small ones, whatever its size.
  (size <= kSmall ? block->pool->small : block->pool->large).insert(behind.get());
  blocks_.emplace(behind->data, std::move(behind));
}

void* CachingAllocator::allocate(size_t bytes) {
  if (bytes == 0) return nullptr;
  size_t size = rounded(bytes);
  std::lock_guard lock(mutex_);
  pass_events(false);
  Pool& pool = pool_of_thread();
  Block* block = take_free(pool, size);
  if (!block) {
    block = new_segment(pool, size);
    split(block, size);
  }
  block->in_use = true;
  statistics_.allocated += block->size;
  statistics_.max_allocated = std::max(statistics_.max_allocated, statistics_.allocated);
  return block->data;
}

void CachingAllocator::release(void* data) noexcept {
  if (!data) return;
  std::lock_guard lock(mutex_);
  Block* block = blocks_.at(data).get();
  block->in_use = false;
  statistics_.allocated -= block->size;
  without_throwing([&] { release_locked(block); });
}

void CachingAllocator::release_locked(Block* block) {
  cudaStream_t current = Stream::current(device_).handle;
  if (current != block->stream) block->used_on.push_back(current);
  if (captures_ > 0 && (!block->used_on.empty() || (!keeps_blocks() && block->pool->id == 0))) {
    after_capture_.push_back(block);
  } else if (!keeps_blocks() && block->pool->id == 0) {
    give_back(block);  // waits for the device
  } else {
    record_events(block);
  }
}

void CachingAllocator::record_stream(const void* data, cudaStream_t stream) {
  std::lock_guard lock(mutex_);
  auto at = blocks_.find(data);
  SF_CHECK(at != blocks_.end() && at->second->in_use, "record_stream: needs a tensor of cuda:", device_,
           " whose memory this library allocated");
  Block& block = *at->second;
  if (stream != block.stream && std::find(block.used_on.begin(), block.used_on.end(), stream) == block.used_on.end())
    block.used_on.push_back(stream);
}

// Free at once, or after what the other streams have been given so far.
void CachingAllocator::record_events(Block* block) {
  if (block->used_on.empty() && block->events == 0) return make_free(block);
  DeviceScope scope(device_);
  for (cudaStream_t stream : std::exchange(block->used_on, {})) {
    cudaEvent_t event = nullptr;
    ++block->events;
    if (idle_events_.empty()) {
      check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "free");
    } else {
      event = idle_events_.back();
      idle_events_.pop_back();
    }
    check(cudaEventRecord(event, stream), "free");
    events_[stream].emplace_back(event, block);
  }
  if (block->events == 0) make_free(block);
}

void CachingAllocator::pass_events(bool wait) {
  if (captures_ > 0) return;
  if (!after_capture_.empty()) {
    for (Block* block : std::exchange(after_capture_, {})) {
      if (!keeps_blocks() && block->pool->id == 0) give_back(block);
      else record_events(block);
    }
  }
  if (events_.empty()) return;
  DeviceScope scope(device_);
  Relaxed relaxed;  // another thread may capture a graph on another device
  for (auto queue = events_.begin(); queue != events_.end();) {
    while (!queue->second.empty()) {
      auto [event, block] = queue->second.front();
      if (wait) check(cudaEventSynchronize(event), "allocate");
      else if (cudaError_t status = cudaEventQuery(event); status == cudaErrorNotReady) break;
      else check(status, "allocate");
      queue->second.pop_front();
      idle_events_.push_back(event);
      if (--block->events == 0) make_free(block);
    }
    queue = queue->second.empty() ? events_.erase(queue) : std::next(queue);
  }
}

void CachingAllocator::make_free(Block* block) {
  auto& free = block->pool->free_blocks(block->size);  // that of its whole segment
  auto take = [&](Block* b) { return b && free.erase(b) > 0; };
  if (Block* b = block->before; take(b)) {
    b->size += block->size;
    b->behind = block->behind;
    if (b->behind) b->behind->before = b;
    blocks_.erase(block->data);
    block = b;
  }
  if (Block* b = block->behind; take(b)) {
    block->size += b->size;
    block->behind = b->behind;
    if (block->behind) block->behind->before = block;
    blocks_.erase(b->data);
  }
  free.insert(block);
}

void CachingAllocator::give_back(Block* segment) {
  DeviceScope scope(device_);
  Relaxed relaxed;
  check(cudaFree(segment->data), "free");
  statistics_.reserved -= segment->size;
  --statistics_.segments;
  blocks_.erase(segment->data);
}

void CachingAllocator::give_back_segments(Pool& pool) {
  for (auto* blocks : {&pool.small, &pool.large})
    for (auto at = blocks->begin(); at != blocks->end();) {
      Block* block = *at;
      if (block->before || block->behind) {
        ++at;
        continue;
      }
      at = blocks->erase(at);
      give_back(block);
    }
}

void CachingAllocator::empty_cache() {
  std::lock_guard lock(mutex_);
  SF_CHECK_AS(RuntimeError, captures_ == 0,
              "empty_cache: not allowed while a CUDA graph is captured: it waits for the device");
  if (blocks_.empty()) return;
  pass_events(true);
  empty_cache_locked();
}

void CachingAllocator::empty_cache_locked() {
  DeviceScope scope(device_);
  Relaxed relaxed;
  check(cudaDeviceSynchronize(), "empty_cache");
  give_back_segments(*pools_.at(0));
  give_back_dead_pools();
}

// Pools without a graph. One whose tensors live on stays until a later call.
void CachingAllocator::give_back_dead_pools() {
  for (auto at = pools_.begin(); at != pools_.end();) {
    Pool* pool = at->second.get();
    bool dead = pool->id != 0 && pool->graphs == 0;
    if (dead) give_back_segments(*pool);
    bool empty = dead && std::none_of(blocks_.begin(), blocks_.end(), [&](auto& b) { return b.second->pool == pool; });
    at = empty ? pools_.erase(at) : std::next(at);
  }
}

void CachingAllocator::begin_capture(uint64_t id) {
  std::lock_guard lock(mutex_);
  auto& pool = pools_[id];
  if (!pool) {
    pool = std::make_unique<Pool>();
    pool->id = id;
  }
  ++pool->graphs;
  ++captures_;
}

void CachingAllocator::end_capture() {
  std::lock_guard lock(mutex_);
  --captures_;
  pass_events(false);
}

void CachingAllocator::leave_pool(uint64_t id) {
  std::lock_guard lock(mutex_);
  Pool& pool = *pools_.at(id);
  if (--pool.graphs > 0 || captures_ > 0) return;  // else by the next empty_cache
  DeviceScope scope(device_);
  Relaxed relaxed;
  check(cudaDeviceSynchronize(), "CUDAGraph");  // a replay may still run
  pass_events(true);
  give_back_dead_pools();
}

void CachingAllocator::forget_stream(cudaStream_t stream) {
  std::lock_guard lock(mutex_);
  for (auto& [data, block] : blocks_) std::erase(block->used_on, stream);
  pass_events(false);
  for (auto& [data, block] : blocks_) {
    if (block->stream != stream) continue;
    std::set<Block*, BySize>* home = nullptr;
    for (auto* blocks : {&block->pool->small, &block->pool->large})
      if (blocks->erase(block.get())) home = blocks;
    block->stream = kEnded;
    if (home) home->insert(block.get());
  }
}

void CachingAllocator::reset_peak() {
  std::lock_guard lock(mutex_);
  statistics_.max_allocated = statistics_.allocated;
  statistics_.max_reserved = statistics_.reserved;
}

void CachingAllocator::set_limit(size_t bytes) {
  std::lock_guard lock(mutex_);
  statistics_.limit = bytes;
}

MemoryStatistics CachingAllocator::statistics() {
  std::lock_guard lock(mutex_);
  MemoryStatistics s = statistics_;
  for (auto& [data, block] : blocks_) {
    if (block->pool->id != 0) s.in_graph_pools += block->size;
    if (block->in_use) continue;
    ++s.free_blocks;
    s.largest_free_block = std::max(s.largest_free_block, block->size);
    if (block->before || block->behind) s.split_free += block->size;
  }
  return s;
}

void CachingAllocator::fail_out_of_memory(size_t size) {
  ++statistics_.out_of_memory;
  size_t free = 0, total = 0, cached = 0;
  cudaMemGetInfo(&free, &total);
  std::vector<size_t> used;
  for (auto& [data, block] : blocks_) {
    if (block->in_use) used.push_back(block->size);
    else cached += block->size;
  }
  size_t most = std::min<size_t>(5, used.size());
  std::partial_sort(used.begin(), used.begin() + std::ptrdiff_t(most), used.end(), std::greater<>());
  auto mib = [](size_t bytes) {
    std::ostringstream text;
    text.precision(1);
    text << std::fixed << double(bytes) / double(kMiB) << " MiB";
    return text.str();
  };
  std::string largest;
  for (size_t i = 0; i < most; ++i) largest += (i ? ", " : " (the largest: ") + mib(used[i]);
  if (most) largest += ")";
  fail<OutOfMemory>(
      "cuda:", device_, ": out of memory: ", mib(size), " asked for, ", mib(free), " of ", mib(total), " free, ",
      mib(statistics_.allocated), " in ", used.size(), " tensors of this process", largest, ", ", mib(cached),
      " in free blocks too small for it or kept for graphs. ",
      statistics_.limit ? "This process may take " + mib(statistics_.limit) + " (set_per_process_memory_fraction). "
                        : std::string(),
      captures_ > 0 ? "The cache is not given back while a CUDA graph is captured: call empty_cache() before. " : "",
      "Try a smaller batch, 16 bits, gradient checkpointing in training, or tiled decoding (enable_vae_tiling) for "
      "large pictures");
}

}  // namespace sf::cuda
