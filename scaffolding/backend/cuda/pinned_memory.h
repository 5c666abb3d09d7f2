// PinnedMemory: host pages that the GPUs copy by themselves,
// kept between uses because pinning and unpinning wait for every device.
// Owns every block until empty_cache(). A block that a copy was queued on is handed out again only when the event
// behind that copy has passed. Thread-safe; one for the process, since pinned pages serve all devices
// (cudaHostAllocPortable).
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "scaffolding/backend/accelerator.h"
#include "scaffolding/backend/cuda/stream.h"

namespace sf::cuda {

class PinnedMemory {
 public:
  static PinnedMemory& instance();
  void* allocate(size_t bytes);  // RuntimeError saying how much is pinned when the system gives no more
  void release(void* data) noexcept;
  bool contains(const void* data);                // a byte of a block in use
  void used_by(const void* data, Stream stream);  // after a copy was queued there; memory of others passes
  // the block that the byte is in stays until this goes; null for memory of others
  std::shared_ptr<const void> hold(const void* data);
  void empty_cache();  // waits for copies; blocks in use stay
  PinnedStatistics statistics();

 private:
  struct Block {
    size_t size = 0;  // bytes
    int owners = 0;
    std::map<std::pair<int, cudaStream_t>, cudaEvent_t> copies;  // by device and stream, behind the last copy there
  };
  using Blocks = std::map<char*, Block>;
  static size_t rounded(size_t bytes);
  Blocks::iterator block_with(const void* data);
  bool copies_done(Block& block, bool wait) noexcept;  // never, where a kernel broke the context
  void drop_owner(Blocks::iterator at) noexcept;
  void collect(bool wait);
  void give_back_free();
  void give_back(Blocks::iterator at);
  cudaEvent_t event_of(int device);

  std::mutex mutex_;
  Blocks blocks_;                                   // all, by first byte
  std::multimap<size_t, char*> free_;               // by size
  std::vector<char*> waiting_;                      // without an owner, with copies under way
  std::map<int, std::vector<cudaEvent_t>> events_;  // idle ones, by device
  PinnedStatistics statistics_;
};

}  // namespace sf::cuda
