#include "scaffolding/nn/streaming/host_slots.h"

#include <algorithm>
#include <cstring>

#include "scaffolding/backend/cpu/packed_weights.h"
#include "scaffolding/io/file.h"
#include "scaffolding/io/read_ahead.h"

namespace sf::nn {

HostSlots::HostSlots(int64_t count, size_t bytes, bool direct) : bytes_(bytes), direct_(direct), slots_(size_t(count)) {
  constexpr size_t kAligned = 4 << 20;  // from here on the allocator gives whole pages, as reading past the cache asks
  for (Slot& s : slots_) s.storage = Storage::allocate(std::max(bytes, kAligned), Device());
  if (direct) lean_.emplace();
  reader_ = std::thread([this] { run(); });
}

HostSlots::~HostSlots() {
  {
    std::lock_guard guard(lock_);
    ends_ = true;
  }
  changed_.notify_all();
  reader_.join();
}

void HostSlots::fill(int slot, const HeldWeights& weights) {
  Slot& s = slots_[size_t(slot)];
  forget(slot);
  ++s.storage->version;  // other bytes than before
  {
    std::lock_guard guard(lock_);
    ++s.reads, s.error = nullptr;
    queue_.push_back({slot, weights.parts()});
  }
  changed_.notify_all();
}

void HostSlots::wait(int slot) {
  Slot& s = slots_[size_t(slot)];
  std::unique_lock guard(lock_);
  changed_.wait(guard, [&] { return s.reads == 0; });
  if (s.error) std::rethrow_exception(s.error);
}

void HostSlots::wait_for_reads() {
  std::unique_lock guard(lock_);
  changed_.wait(guard, [&] { return queue_.empty(); });
}

void HostSlots::forget(int slot) {
  const Ref<Storage>& s = storage(slot);
  if (std::exchange(s->packed, false)) cpu::forget_packed(s->data, s->bytes);
}

void HostSlots::run() {
  std::unique_lock guard(lock_);
  for (;;) {
    changed_.wait(guard, [&] { return ends_ || !queue_.empty(); });
    if (ends_) return;
    const Read r = queue_.front();
    std::exception_ptr error;
    guard.unlock();
    try {
      read(r);
    } catch (...) {
      error = std::current_exception();
    }
    guard.lock();
    if (Slot& s = slots_[size_t(r.slot)]; --s.reads == 0) s.error = error;
    queue_.erase(queue_.begin());
    changed_.notify_all();
  }
}

// What lies together is read at once: the longer a read, the more of it a disk does side by side.
void HostSlots::read(const Read& r) {
  auto* to = static_cast<char*>(storage(r.slot)->data);
  std::vector<const HeldWeights::Part*> order;
  for (const HeldWeights::Part& p : r.parts)
    if (p.home.nbytes()) order.push_back(&p);
  auto from = [&](size_t i) { return static_cast<const char*>(order[i]->home.data_ptr()); };
  std::sort(order.begin(), order.end(), [](auto* a, auto* b) { return a->at < b->at; });
  for (auto* p : order) io::refuse_changed(p->home.data_ptr());
  for (size_t i = 0, n; i < order.size(); i = n) {
    for (n = i + 1; n < order.size() && from(n) - from(i) == std::ptrdiff_t(order[n]->at - order[i]->at);) ++n;
    const auto bytes = uint64_t(from(n - 1) - from(i)) + order[n - 1]->home.nbytes();
    if (io::read_mapped(from(i), bytes, to + order[i]->at, direct_)) continue;
    for (size_t k = i; k < n; ++k) {  // memory, or pages that were written
      std::memcpy(to + order[k]->at, from(k), order[k]->home.nbytes());
      io::release_mapped(from(k), order[k]->home.nbytes());
    }
  }
}

}  // namespace sf::nn
