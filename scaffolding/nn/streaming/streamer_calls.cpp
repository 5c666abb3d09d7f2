#include <algorithm>

#include "scaffolding/autograd/mode.h"
#include "scaffolding/backend/free_memory.h"
#include "scaffolding/io/read_ahead.h"
#include "scaffolding/nn/streaming/streamer_impl.h"

namespace sf::nn {

void Streamer::Impl::look_at(Group& g) {
  if (!g.weights.changed_home()) return;
  if (!on_cpu() || g.slot >= 0) wait_for_copies();  // they read the homes
  g.weights.hold_again();
  forget(g);
  drop_passes();
  if (on_cpu()) return;
  if (g.weights.laid_out_bytes() <= slots_->bytes()) return;
  try {
    make_slots();  // grew: other dtypes
  } catch (...) {
    offload();
    throw;
  }
}

void Streamer::Impl::enter(Group& g) {
  if (g.inside++ > 0) return;
  try {
    const bool records = autograd::grad_enabled();
    if (records && !g.resident)
      for (const Tensor& t : g.weights.tensors())
        SF_CHECK_AS(RuntimeError, !t.requires_grad(), g.name,
                    ": its weights are streamed, and leave before a gradient could be computed through them: call the "
                    "model under no_grad, or take the offloading off");
    autograd::NoGrad off;
    load();
    if (g.order == 0) g.order = ++ordered_;
    if (g.resident) return;
    for (Group* other : streamed_)
      if (other != &g && other->shown && other->inside == 0) away(*other);
    if (on_cpu()) g.weights.refuse_changed();
    // A slot would have another block's weights by the time of the backward pass: what is recorded reads the pages of
    // the file, which stay what they are.
    if (on_cpu() && records) return;
    if (capturing_) {
      if (!g.shown) capturing_->enter(g);
      return;
    }
    SF_CHECK_AS(RuntimeError, !cuda::CudaGraph::recording(), g.name,
                ": its weights are streamed, and a captured graph would not wait for them; a StreamedGraph does");
    if (g.shown) return;
    look_at(g);
    if (last_) last_->next[before_last_] = &g;
    else first_ = &g;
    entered_ += !std::exchange(g.was_entered, true);
    before_last_ = std::exchange(last_, &g);
    if (g.slot < 0) {
      ++counts_.misses;
      fetch(g, true);
    }
    on_cpu() ? host_->wait(g.slot) : slots_->read_from_here(g.slot);
    show(g, g.slot);
    fetch_after(g);
  } catch (...) {
    --g.inside;
    if (on_cpu() && !g.shown) forget(g);  // reading it may have failed
    throw;
  }
}

void Streamer::Impl::leave(Door& door) noexcept {
  Group& g = *door.group;
  if (--g.inside > 0 || !door.last || g.resident) return;
  try {
    autograd::NoGrad off;
    away(g);
    if (!capturing_) fetch_after(g);
  } catch (const Error&) {
    // A broken context, of which the next op will tell; or a broken capture.
    if (capturing_) capturing_->broke(std::current_exception());
  }
}

void Streamer::Impl::show(Group& g, int slot) {
  g.weights.show(memory_of(slot));
  g.slot_version = memory_of(slot)->version;
  g.shown = true, g.shown_in = slot;
}

void Streamer::Impl::away(Group& g) {
  if (!g.shown) return;
  g.shown = false;
  const bool written = memory_of(g.shown_in)->version != g.slot_version;
  if (capturing_) {
    g.weights.show_home();
    SF_CHECK_AS(RuntimeError, !written, g.name,
                ": its weights are streamed and its call writes them, which a replay would lose");
    return capturing_->leave(g);
  }
  if (written) counts_.written_back += g.weights.bring_back();
  on_cpu() ? host_->forget(g.shown_in) : slots_->read_until_here(g.shown_in);
  g.weights.show_home();
  if (!written && &g == last_ && next_of(before_last_, &g) == &g) return;  // stays for its next turn
  forget(g);
}

// What slots hold of it is of no use any more.
void Streamer::Impl::forget(Group& g) {
  std::replace(in_slot_.begin(), in_slot_.end(), &g, static_cast<Group*>(nullptr));
  g.slot = -1;
}

int Streamer::Impl::free_slot() const {
  for (size_t i = 0; i < in_slot_.size(); ++i)
    if (!in_slot_[i]) return int(i);
  return -1;
}

void Streamer::Impl::make_host_slots(size_t bytes) {
  if (host_ && bytes <= host_->bytes()) return;
  for (Group* g : streamed_) {
    bytes = std::max(bytes, g->weights.laid_out_bytes());
    if (g->slot >= 0) away(*g), g->slot = -1;
  }
  host_.reset();
  in_slot_.assign(size_t(options.slots), nullptr);
  host_ = std::make_unique<HostSlots>(options.slots, bytes, size_t(counts_.weight_bytes) > free_host_memory().free);
}

void Streamer::Impl::fetch(Group& g, bool may_evict) {
  if (g.slot >= 0) return;
  if (on_cpu()) make_host_slots(g.weights.laid_out_bytes());
  int slot = free_slot();
  for (size_t i = in_slot_.size(); slot < 0 && may_evict && i-- > 0;)  // fetched early, and wrongly
    if (!in_slot_[i]->shown) {
      slot = int(i);
    }
  if (slot < 0) {
    SF_CHECK_AS(RuntimeError, !may_evict, g.name, ": all ", in_slot_.size(),
                " slots of streamed weights are in use by modules that call each other");
    return;
  }
  fill(g, slot);
}

void Streamer::Impl::fill(Group& g, int slot) {
  if (Group* other = std::exchange(in_slot_[size_t(slot)], nullptr); other && other->slot == slot) other->slot = -1;
  if (on_cpu()) {
    host_->fill(slot, g.weights);
    g.weights.sent();
  } else {
    StreamSlots::Filling filling(*slots_, slot);
    counts_.waits += staging_->send(g.weights, filling);
  }
  ++memory_of(slot)->version;  // a gradient through what was there is refused, not computed from this
  in_slot_[size_t(slot)] = &g;
  g.slot = slot;
  ++counts_.copies;
  counts_.copied_bytes += g.weights.bytes();
}

// As it was the last time; where it never was, in the order of the tree.
Streamer::Impl::Group* Streamer::Impl::next_of(const Group* before, const Group* g) const {
  if (auto known = g->next.find(before); known != g->next.end()) return known->second;
  if (!g->next.empty()) return g->next.begin()->second;
  if (entered_ == streamed_.size()) return first_;  // of a call that is over: the next one begins as this did
  const size_t i = size_t(std::find(streamed_.begin(), streamed_.end(), g) - streamed_.begin());
  return streamed_[(i + 1) % streamed_.size()];
}

// As many as there is room for, in the order in which they will be called.
void Streamer::Impl::fetch_after(Group& g) {
  const Group* before = &g == last_ ? before_last_ : nullptr;
  Group* at = &g;
  auto step = [&] { before = std::exchange(at, next_of(before, at)); };
  for (size_t i = 0; i < streamed_.size() && free_slot() >= 0; ++i) {
    step();
    fetch(*at, false);
  }
  if (on_cpu()) return;
  for (int i = 0; i < kAhead; ++i) {
    step();
    if (at->weights.block() || at->slot >= 0) continue;
    for (const Tensor& t : at->weights.tensors()) io::read_ahead(t.data_ptr(), t.nbytes());
  }
}

}  // namespace sf::nn
