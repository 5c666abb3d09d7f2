// HostSlots: streaming on the CPU. Weights that are pages of a file are read from it into a few pieces of memory at
// fixed addresses by a thread of its own, ahead of the calls that use them; the mapping's own pages are not touched.
// Where the machine has no room to keep the file's pages, they are read past the page cache, and other memory is held
// small too (LeanMemory).
#pragma once
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "scaffolding/backend/cpu/lean_memory.h"
#include "scaffolding/nn/streaming/held_weights.h"

namespace sf::nn {

class HostSlots {
 public:
  HostSlots(int64_t count, size_t bytes, bool direct);
  ~HostSlots();
  HostSlots(const HostSlots&) = delete;
  HostSlots& operator=(const HostSlots&) = delete;

  size_t bytes() const { return bytes_; }  // of one
  int count() const { return int(slots_.size()); }
  const Ref<Storage>& storage(int slot) const { return slots_[size_t(slot)].storage; }

  // Begins to read the weights' homes, which stay as they are until then; weights are laid out as_in_files.
  void fill(int slot, const HeldWeights& weights);
  void wait(int slot);    // until it is filled; throws what reading threw
  void wait_for_reads();  // for all that were begun; errors are those slots' own
  void forget(int slot);  // what kernels packed of its content

 private:
  struct Read {
    int slot;
    std::vector<HeldWeights::Part> parts;
  };
  struct Slot {
    Ref<Storage> storage;
    int reads = 0;             // that were begun and are not done
    std::exception_ptr error;  // of the last
  };
  void run();
  void read(const Read& r);

  const size_t bytes_;
  const bool direct_;
  std::optional<cpu::LeanMemory> lean_;
  std::vector<Slot> slots_;
  std::mutex lock_;
  std::condition_variable changed_;
  std::vector<Read> queue_;  // the first is under way
  bool ends_ = false;
  std::thread reader_;
};

}  // namespace sf::nn
