#include "scaffolding/nn/streaming/stream_slots.h"

namespace sf::nn {

StreamSlots::StreamSlots(Device device, int64_t count, size_t bytes, bool own_stream)
    : device_(device), gpu_(accelerator(device)), bytes_(bytes), own_stream_(own_stream), slots_(size_t(count)) {
  try {
    if (own_stream) stream_ = gpu_.make_stream(device.index);
    for (Slot& s : slots_) {
      s.storage = Storage::allocate(bytes, device);
      s.filled = gpu_.make_event(device.index, false);
      s.read = gpu_.make_event(device.index, false);
    }
  } catch (...) {
    give_back();
    throw;
  }
}

StreamSlots::~StreamSlots() { give_back(); }

void StreamSlots::give_back() noexcept {
  try {
    if (stream_) gpu_.synchronize_stream(device_.index, stream_);
    for (Slot& s : slots_) {
      if (s.filled) gpu_.destroy_event(device_.index, s.filled);
      if (s.read) gpu_.destroy_event(device_.index, s.read);
    }
    if (stream_) gpu_.destroy_stream(device_.index, stream_);
  } catch (const Error&) {
    // A broken context: nothing of it can be given back.
  }
}

StreamSlots::Filling::Filling(StreamSlots& slots, int slot) : slots_(slots), slot_(slot) {
  Accelerator& gpu = slots.gpu_;
  const int index = slots.device_.index;
  before_ = gpu.current_stream(index);
  if (!slots.own_stream_) return;
  Slot& s = slots.slots_[size_t(slot)];
  // What its memory was before it was a slot's is behind this; later, what read the slot.
  if (!s.was_read) gpu.record_event(index, s.read, before_);
  s.was_read = true;
  gpu.stream_wait(index, slots.stream_, s.read);
  gpu.set_current_stream(index, slots.stream_);
}

StreamSlots::Filling::~Filling() {
  if (slots_.own_stream_) slots_.gpu_.set_current_stream(slots_.device_.index, before_);
}

void StreamSlots::Filling::copy(size_t at, const void* host, size_t bytes) {
  char* to = static_cast<char*>(slots_.storage(slot_)->data) + at;
  slots_.gpu_.copy_async(to, slots_.device_, host, Device(), bytes);
}

EventHandle StreamSlots::Filling::done() {
  EventHandle filled = slots_.slots_[size_t(slot_)].filled;
  slots_.gpu_.record_event(slots_.device_.index, filled, slots_.own_stream_ ? slots_.stream_ : before_);
  return filled;
}

void StreamSlots::wait_for_copies() {
  gpu_.synchronize_stream(device_.index, own_stream_ ? stream_ : gpu_.current_stream(device_.index));
}

void StreamSlots::read_from_here(int slot) {
  gpu_.stream_wait(device_.index, gpu_.current_stream(device_.index), slots_[size_t(slot)].filled);
}

void StreamSlots::read_until_here(int slot) {
  Slot& s = slots_[size_t(slot)];
  gpu_.record_event(device_.index, s.read, gpu_.current_stream(device_.index));
  s.was_read = true;
}

}  // namespace sf::nn
