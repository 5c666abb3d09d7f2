#include "scaffolding/nn/streaming/stream_staging.h"

namespace sf::nn {

StreamStaging::StreamStaging(Device device, int64_t budget)
    : device_(device), gpu_(accelerator(device)), budget_(budget) {}

StreamStaging::~StreamStaging() {
  try {
    for (Buffer& b : buffers_) free_buffer(b);
  } catch (const Error&) {
    // A broken context: nothing of it can be given back.
  }
}

char* StreamStaging::allocate(size_t bytes) {
  if (bytes == 0 || pinned_ > budget_ || int64_t(bytes) > budget_ - pinned_) return nullptr;
  const size_t before = gpu_.pinned_memory().allocated;
  void* data = nullptr;
  try {
    data = gpu_.allocate_pinned(bytes);
  } catch (const RuntimeError&) {
    budget_ = pinned_;  // the system's own limit
    return nullptr;
  }
  const auto taken = int64_t(gpu_.pinned_memory().allocated - before);  // rounded up
  if (taken > budget_ - pinned_) {
    gpu_.release_pinned(data);
    return nullptr;
  }
  pinned_ += taken;
  return static_cast<char*>(data);
}

void StreamStaging::free_buffer(Buffer& b) {
  if (b.in_flight) gpu_.synchronize_event(device_.index, b.read);
  if (b.read) gpu_.destroy_event(device_.index, b.read);
  if (b.data) gpu_.release_pinned(b.data);
  pinned_ -= b.taken;
  b = {};
}

void StreamStaging::pin(const std::vector<HeldWeights*>& groups, size_t largest, bool homes) {
  int64_t all = pinned_;
  for (HeldWeights* g : groups)
    if (!g->block()) all += int64_t(g->laid_out_bytes());
  if (!homes || all + all / 8 > budget_)
    for (Buffer& b : buffers_) {
      if (b.bytes >= largest) continue;
      free_buffer(b);
      const int64_t before = pinned_;
      if (!(b.data = allocate(largest))) continue;
      b.bytes = largest, b.taken = pinned_ - before;
      b.read = gpu_.make_event(device_.index, false);
    }
  if (!homes) return;
  for (HeldWeights* g : groups) {
    if (g->block()) continue;
    if (char* data = allocate(g->laid_out_bytes()))
      g->settle(
          Storage::borrow(data, g->laid_out_bytes(), Device(), [&gpu = gpu_, data] { gpu.release_pinned(data); }));
  }
}

int64_t StreamStaging::send(HeldWeights& weights, StreamSlots::Filling& to) {
  int64_t waits = 0;
  const size_t bytes = weights.laid_out_bytes();
  if (weights.block()) {
    to.copy(0, weights.block()->data, bytes);
  } else if (Buffer& b = buffers_[next_]; b.data && bytes <= b.bytes) {
    if (b.in_flight && !gpu_.event_done(device_.index, b.read)) {
      gpu_.synchronize_event(device_.index, b.read);
      ++waits;
    }
    weights.write_block(b.data);
    to.copy(0, b.data, bytes);
    gpu_.record_event(device_.index, b.read, gpu_.current_stream(device_.index));
    b.in_flight = true;
    if (buffers_[1 - next_].data) next_ = 1 - next_;
  } else {
    weights.refuse_changed();
    for (const HeldWeights::Part& p : weights.parts()) to.copy(p.at, p.home.data_ptr(), p.home.nbytes());
  }
  weights.sent();
  to.done();
  return waits;
}

}  // namespace sf::nn
