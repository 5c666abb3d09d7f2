// CachingAllocator: device memory kept between steps, because cudaMalloc and cudaFree synchronise the device. Segments
// come from cudaMalloc and are split into blocks; neighbours that are free become one block again,
// as in PyTorch's CUDACachingAllocator.
// Owns every segment until empty_cache(). A block belongs to the stream it was allocated on and is reused there at
// once; where other streams used it too (record_stream, or freed while another is current), only after an event of
// theirs. Segments of a stream that was destroyed go to the stream that asks next. What a graph allocates while it is
// captured comes from its pool and goes to nobody else while a graph of that pool lives. Thread-safe;
// one allocator and one lock per device.
#pragma once
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <unordered_map>
#include <vector>

#include "scaffolding/backend/accelerator.h"
#include "scaffolding/backend/cuda/stream.h"

namespace sf::cuda {

class CachingAllocator {
 public:
  static CachingAllocator& of(int device);
  void* allocate(size_t bytes);  // RuntimeError saying asked, free, cached, the largest blocks in use and what to try
  void release(void* data) noexcept;  // lost where it cannot be given back: once a kernel broke the context
  void record_stream(const void* data, cudaStream_t stream);  // data: where a block in use begins
  void forget_stream(cudaStream_t stream);                    // before it is destroyed; it has done its work
  // Waits for the device, then gives it segments without a block in use; not while a graph is captured. A device of
  // which this has nothing is left alone.
  void empty_cache();
  void reset_peak();             // the largest numbers are those of now
  void set_limit(size_t bytes);  // of all segments together; 0: none
  MemoryStatistics statistics();

  // While the calling thread captures (CudaGraph::recording), what it allocates comes from that graph's pool.
  void begin_capture(uint64_t pool);  // one more graph of that pool
  void end_capture();
  void leave_pool(uint64_t pool);  // a graph less; with the last one its free segments go back to the device

 private:
  struct Pool;
  struct Block {
    char* data = nullptr;
    size_t size = 0;  // bytes
    cudaStream_t stream = nullptr;
    Pool* pool = nullptr;
    bool in_use = false;
    Block *before = nullptr, *behind = nullptr;  // of the same segment
    std::vector<cudaStream_t> used_on;           // besides stream
    int events = 0;  // that must pass before it is free; one that could not be recorded never does
  };
  struct BySize {
    bool operator()(const Block* a, const Block* b) const;
  };
  struct Pool {
    uint64_t id = 0;  // 0: the one of everybody
    int graphs = 0;
    std::set<Block*, BySize> small, large;  // free ones
    std::set<Block*, BySize>& free_blocks(size_t size) { return size <= kSmall ? small : large; }
  };
  static constexpr size_t kUnit = 512, kSmall = size_t(1) << 20, kMiB = size_t(1) << 20;

  static size_t rounded(size_t bytes);
  Pool& pool_of_thread();
  Block* take_free(Pool& pool, size_t size);
  Block* new_segment(Pool& pool, size_t size);
  void split(Block* block, size_t size);
  void make_free(Block* block);
  void release_locked(Block* block);
  void record_events(Block* block);
  void pass_events(bool wait);
  void give_back_segments(Pool& pool);
  void give_back_dead_pools();
  void give_back(Block* segment);
  void empty_cache_locked();
  [[noreturn]] void fail_out_of_memory(size_t size);

  int device_ = 0;
  std::mutex mutex_;
  std::unordered_map<const void*, std::unique_ptr<Block>> blocks_;  // all, by where they begin
  std::map<uint64_t, std::unique_ptr<Pool>> pools_;
  std::map<cudaStream_t, std::deque<std::pair<cudaEvent_t, Block*>>> events_;  // in the order of their stream
  std::vector<cudaEvent_t> idle_events_;
  std::vector<Block*> after_capture_;  // freed meanwhile: no event can be recorded, nothing given back
  int captures_ = 0;
  MemoryStatistics statistics_;  // but for what statistics() counts
};

}  // namespace sf::cuda
