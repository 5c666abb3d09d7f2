// StreamStaging: the host's side of streamed weights. As many groups as a budget of pinned memory allows have their
// homes in pinned blocks, which a GPU copies by itself; the others stay where they are, and pass through two pinned
// buffers, or, where there is no room for those either, through the driver's.
#pragma once
#include "scaffolding/nn/streaming/held_weights.h"
#include "scaffolding/nn/streaming/stream_slots.h"

namespace sf::nn {

class StreamStaging {
 public:
  StreamStaging(Device device, int64_t budget);  // bytes of pinned memory
  ~StreamStaging();
  StreamStaging(const StreamStaging&) = delete;
  StreamStaging& operator=(const StreamStaging&) = delete;

  // Again for groups that came later: those whose homes are pinned stay as they are.
  void pin(const std::vector<HeldWeights*>& groups, size_t largest, bool homes);
  // Queues the copy; returns how often the host had to wait for a buffer.
  int64_t send(HeldWeights& weights, StreamSlots::Filling& to);
  int64_t pinned_bytes() const { return pinned_; }  // as they were allocated

 private:
  struct Buffer {
    char* data = nullptr;
    size_t bytes = 0;
    int64_t taken = 0;  // of the budget
    EventHandle read = nullptr;
    bool in_flight = false;
  };
  void free_buffer(Buffer& b);
  char* allocate(size_t bytes);  // null where the budget or the system has no more

  Device device_;
  Accelerator& gpu_;
  int64_t budget_, pinned_ = 0;
  Buffer buffers_[2];
  size_t next_ = 0;
};

}  // namespace sf::nn
