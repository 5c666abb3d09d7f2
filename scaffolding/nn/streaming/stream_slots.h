// StreamSlots: memory of a GPU at fixed addresses that copies fill beside the work that reads it. Order is kept by
// events alone: a slot is filled after what read it before, and read after it was filled; the host waits for neither.
#pragma once
#include <vector>

#include "scaffolding/backend/accelerator.h"
#include "scaffolding/core/tensor.h"

namespace sf::nn {

class StreamSlots {
 public:
  // own_stream: copies have a stream of their own; else they are queued on the current one.
  StreamSlots(Device device, int64_t count, size_t bytes, bool own_stream);
  ~StreamSlots();  // waits for copies under way
  StreamSlots(const StreamSlots&) = delete;
  StreamSlots& operator=(const StreamSlots&) = delete;

  int count() const { return int(slots_.size()); }
  size_t bytes() const { return bytes_; }  // of one
  const Ref<Storage>& storage(int slot) const { return slots_[size_t(slot)].storage; }

  // One slot's next content, in one copy or several parts. Queued, not waited for: pinned memory must stay as it is
  // until it passed; other memory has been read when copy() returns.
  class Filling {
   public:
    Filling(StreamSlots& slots, int slot);
    ~Filling();
    Filling(const Filling&) = delete;
    Filling& operator=(const Filling&) = delete;
    void copy(size_t at, const void* host, size_t bytes);
    EventHandle done();  // passes when the slot is filled

   private:
    StreamSlots& slots_;
    int slot_;
    StreamHandle before_ = nullptr;
  };
  void read_from_here(int slot);   // the current stream's work from now on sees what was copied
  void read_until_here(int slot);  // and may be followed by other bytes
  void wait_for_copies();          // the host, for those that were queued

 private:
  struct Slot {
    Ref<Storage> storage;
    EventHandle filled = nullptr, read = nullptr;
    bool was_read = false;
  };
  void give_back() noexcept;

  Device device_;
  Accelerator& gpu_;
  size_t bytes_;
  StreamHandle stream_ = nullptr;
  bool own_stream_;
  std::vector<Slot> slots_;
};

}  // namespace sf::nn
