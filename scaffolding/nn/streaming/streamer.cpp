#include "scaffolding/nn/streaming/streamer.h"

#include <algorithm>
#include <map>
#include <mutex>

#include "scaffolding/autograd/mode.h"
#include "scaffolding/backend/cuda_graph.h"
#include "scaffolding/backend/free_memory.h"
#include "scaffolding/io/read_ahead.h"
#include "scaffolding/io/upload_ring.h"
#include "scaffolding/nn/streaming/held_weights.h"
#include "scaffolding/nn/streaming/host_slots.h"
#include "scaffolding/nn/streaming/residence.h"
#include "scaffolding/nn/streaming/stream_slots.h"
#include "scaffolding/nn/streaming/stream_staging.h"

namespace sf::nn {

namespace {
struct Attached {
  std::mutex lock;
  std::map<const Module*, Streamer*> of;
};
Attached& attached() {
  static auto* const a = new Attached;
  return *a;
}
constexpr int kAhead = 2;  // groups that a disk is told of before they are needed
}  // namespace

class Streamer::Impl {
 public:
  Impl(Module& model, const StreamOptions& options);
  ~Impl();

  void load();
  void offload();
  bool lay_side_by_side(const Tensors& tensors);
  bool loaded = false;
  StreamStatistics statistics() const;
  std::vector<std::string> names(bool resident) const;
  std::vector<Place> places() const;

  Module& model;
  const StreamOptions options;

 private:
  struct Group;
  // Of one of a group's modules. The group leaves behind the last one.
  struct Door final : Residence {
    Impl* all = nullptr;
    Group* group = nullptr;
    Module* module = nullptr;
    bool last = false;
    void enter() override { all->enter(*group); }
    void leave() noexcept override { all->leave(*this); }
  };
  struct Group {
    std::string name;
    std::vector<Module*> owners;
    HeldWeights weights;
    bool resident = false;
    int slot = -1;       // that holds it, or will when its copy is done
    int inside = 0;      // calls under way
    bool shown = false;  // tensors are views of the slot
    uint32_t slot_version = 0;
    bool was_entered = false;
    // The streamed group that came after it the last time, by the one before it: a group may have its turn twice.
    std::map<const Group*, Group*> next;
    std::vector<std::unique_ptr<Door>> doors;
  };
  // Brings everything back at the next call of the model, or of a part of it.
  struct Bell final : Residence {
    Impl* all = nullptr;
    Module* module = nullptr;
    bool hangs = false;
    void enter() override { all->begin(); }
    void leave() noexcept override {}
  };

  bool on_cpu() const { return options.device.is_cpu(); }
  void choose_residents();
  void open_doors();
  void close_doors() noexcept;
  void begin();
  void make_bells();
  void hang_bells();
  void take_bells() noexcept;
  void enter(Group& g);
  void leave(Door& door) noexcept;
  void away(Group& g);
  void fetch(Group& g, bool may_evict);
  void make_host_slots(size_t bytes);
  const Ref<Storage>& memory_of(int slot) const { return host_ ? host_->storage(slot) : slots_->storage(slot); }
  void wait_for_copies() { host_ ? host_->wait_for_reads() : slots_->wait_for_copies(); }
  Group* next_of(const Group* before, const Group* g) const;
  void fetch_after(Group& g);
  void look_at(Group& g);
  int free_slot() const;

  std::vector<Group> groups_;  // all, in the order of the tree
  std::vector<Group*> streamed_;
  HeldWeights kept_;
  std::unique_ptr<StreamSlots> slots_;
  std::unique_ptr<HostSlots> host_;  // instead of them, on the CPU
  std::unique_ptr<StreamStaging> staging_;
  std::vector<Group*> in_slot_;
  std::vector<std::unique_ptr<Bell>> bells_;
  Group *last_ = nullptr, *before_last_ = nullptr;  // that were entered
  Group* first_ = nullptr;
  size_t entered_ = 0;  // groups that were, ever
  StreamStatistics counts_;
};

Streamer::Impl::Impl(Module& m, const StreamOptions& o) : model(m), options(o) {
  SF_CHECK(o.slots >= 3 && o.slots <= 64, "stream: slots must lie between 3 and 64, got ", o.slots);
  SF_CHECK(o.resident_bytes >= 0 && o.pinned_bytes >= 0, "stream: bytes must not be negative, got resident ",
           o.resident_bytes, ", pinned ", o.pinned_bytes);
  SF_CHECK(o.device.is_cpu() || o.device.is_cuda(), "stream: goes to a GPU or the CPU, got ", o.device);
  if (o.device.is_cuda()) accelerator(o.device);  // what is missing is said before anything moves
  StreamGroups found = stream_groups(m, o.level, o.blocks_per_group);
  autograd::NoGrad off;
  try {
    kept_.hold(found.kept);
    groups_.resize(found.groups.size());
    for (size_t i = 0; i < groups_.size(); ++i) {
      Group& g = groups_[i];
      g.name = found.groups[i].name, g.owners = found.groups[i].owners;
      g.weights.hold(found.groups[i].tensors, on_cpu());
      counts_.weight_bytes += g.weights.bytes();
    }
    counts_.weight_bytes += kept_.bytes();
    choose_residents();
    if (!on_cpu()) staging_ = std::make_unique<StreamStaging>(o.device, o.pinned_bytes);
    size_t largest = 0;
    for (Group* g : streamed_) largest = std::max(largest, g->weights.laid_out_bytes());
    if (staging_) {
      std::vector<HeldWeights*> all;
      for (Group* g : streamed_) all.push_back(&g->weights);
      staging_->pin(all, largest, options.pin_weights);
    }
    open_doors();
    make_bells();
    if (options.load_now) load();
    if (!loaded || on_cpu()) hang_bells();
  } catch (...) {
    close_doors();
    take_bells();
    throw;
  }
}

Streamer::Impl::~Impl() {
  autograd::NoGrad off;
  close_doors();
  try {
    offload();
  } catch (const Error&) {
    // A broken context: weights that it held are lost.
  }
  take_bells();
}

// Evenly, so that copies have work to hide behind everywhere.
void Streamer::Impl::choose_residents() {
  int64_t total = 0, taken = 0;
  double due = 0;
  for (Group& g : groups_) total += g.weights.bytes();
  const double share = total ? std::min(1.0, double(options.resident_bytes) / double(total)) : 1;
  auto take = [&](Group& g) {
    if (g.resident || taken + g.weights.bytes() > options.resident_bytes) return;
    g.resident = true;
    taken += g.weights.bytes();
  };
  for (Group& g : groups_) {
    due += share * double(g.weights.bytes());
    if (double(taken) + double(g.weights.bytes()) / 2 <= due) take(g);
  }
  for (Group& g : groups_) take(g);
  for (Group& g : groups_)
    if (on_cpu() && !g.weights.in_files()) g.resident = true;  // it takes memory in any case
  for (Group& g : groups_)
    if (!g.resident) streamed_.push_back(&g);
  if (!on_cpu() && int64_t(streamed_.size()) <= options.slots)  // slots would be no smaller
    for (Group* g : std::exchange(streamed_, {})) g->resident = true;
}

void Streamer::Impl::open_doors() {
  for (Group* g : streamed_)
    for (Module* owner : g->owners) {
      auto door = std::make_unique<Door>();
      door->all = this, door->group = g, door->last = owner == g->owners.back();
      set_residence(*owner, door.get());
      door->module = owner;
      g->doors.push_back(std::move(door));
    }
}

void Streamer::Impl::close_doors() noexcept {
  for (Group* g : streamed_)
    for (auto& door : g->doors)
      if (door->module) set_residence(*std::exchange(door->module, nullptr), nullptr);
}

// The root, and its children: an autoencoder is not called but encodes and decodes.
void Streamer::Impl::make_bells() {
  std::vector<Module*> at{&model};
  for (auto& child : named_children(model)) at.push_back(child.module);
  for (Module* m : at) {
    if (residence_of(*m)) continue;
    bells_.push_back(std::make_unique<Bell>());
    bells_.back()->all = this, bells_.back()->module = m;
  }
}

void Streamer::Impl::begin() {
  load();
  if (on_cpu()) kept_.refuse_changed();
}

void Streamer::Impl::hang_bells() {
  for (auto& bell : bells_)
    if (!std::exchange(bell->hangs, true)) set_residence(*bell->module, bell.get());
}

void Streamer::Impl::take_bells() noexcept {
  for (auto& bell : bells_)
    if (std::exchange(bell->hangs, false)) set_residence(*bell->module, nullptr);
}

void Streamer::Impl::load() {
  if (loaded) return;
  autograd::NoGrad off;
  if (on_cpu()) {
    loaded = true;
    for (Group* g : streamed_) g->weights.release_pages();
    if (!streamed_.empty()) fetch(*streamed_[0], false), fetch_after(*streamed_[0]);
    return;
  }
  if (options.phases)
    for (Streamer* other : options.phases->members)
      if (other->impl_.get() != this) other->offload();
  size_t largest = 0, bytes = size_t(kept_.bytes());
  for (Group& g : groups_) {
    if (!g.resident) largest = std::max(largest, g.weights.laid_out_bytes());
    else bytes += size_t(g.weights.bytes());
  }
  loaded = true;  // from here on offload() has what to undo
  try {
    if (!streamed_.empty() && !slots_) {
      slots_ = std::make_unique<StreamSlots>(options.device, options.slots, largest, options.use_stream);
      in_slot_.assign(size_t(options.slots), nullptr);
    }
    auto ring = io::UploadRing::of(options.device, bytes);
    kept_.move_to(options.device, ring.get());
    for (Group& g : groups_)
      if (g.resident) g.weights.move_to(options.device, ring.get());
    if (ring) ring->finish();
    if (!streamed_.empty()) {
      fetch(*streamed_[0], false);
      fetch_after(*streamed_[0]);
    }
  } catch (...) {
    offload();
    throw;
  }
  take_bells();
}

void Streamer::Impl::offload() {
  if (!loaded) return;
  loaded = false;
  for (Group* g : streamed_) {
    away(*g);
    g->slot = -1;
  }
  in_slot_.assign(in_slot_.size(), nullptr);
  slots_.reset(), host_.reset();
  kept_.move_home();
  for (Group& g : groups_)
    if (g.resident) g.weights.move_home();
  last_ = before_last_ = nullptr;
  hang_bells();
}

bool Streamer::Impl::lay_side_by_side(const Tensors& tensors) {
  if (on_cpu()) return false;
  if (kept_.holds(tensors[0])) return kept_.lay_side_by_side(tensors);
  for (Group& g : groups_) {
    if (!g.weights.holds(tensors[0])) continue;
    if (g.weights.lie_side_by_side(tensors)) return true;
    if (g.shown) return false;
    if (slots_) slots_->wait_for_copies();  // they read the homes, which may move
    if (g.slot >= 0) in_slot_[size_t(g.slot)] = nullptr, g.slot = -1;
    return g.weights.lay_side_by_side(tensors);
  }
  return false;
}

// ---- a call

void Streamer::Impl::look_at(Group& g) {
  if (!g.weights.changed_home()) return;
  if (g.slot >= 0) wait_for_copies();  // they read the homes
  g.weights.hold_again();
  if (g.slot >= 0) in_slot_[size_t(g.slot)] = nullptr, g.slot = -1;
  if (on_cpu()) return;
  if (g.weights.laid_out_bytes() <= slots_->bytes()) return;
  // Grew: other dtypes. All slots are made anew.
  for (Group* each : streamed_)
    if (each->slot >= 0) away(*each), each->slot = -1;
  const int count = slots_->count();
  slots_.reset();
  slots_ = std::make_unique<StreamSlots>(options.device, count, g.weights.laid_out_bytes(), options.use_stream);
  in_slot_.assign(size_t(count), nullptr);
}

void Streamer::Impl::enter(Group& g) {
  if (g.inside++ > 0) return;
  try {
    if (autograd::grad_enabled())
      for (const Tensor& t : g.weights.tensors())
        SF_CHECK_AS(RuntimeError, !t.requires_grad(), g.name,
                    ": its weights are streamed, and leave before a gradient could be computed through them: call the "
                    "model under no_grad, or take the offloading off");
    autograd::NoGrad off;
    load();
    for (Group* other : streamed_)
      if (other != &g && other->shown && other->inside == 0) away(*other);
    if (on_cpu()) g.weights.refuse_changed();
    SF_CHECK_AS(RuntimeError, !cuda::CudaGraph::recording(), g.name,
                ": its weights are streamed, and a captured graph would not wait for them");
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
    g.weights.show(memory_of(g.slot));
    g.slot_version = memory_of(g.slot)->version;
    g.shown = true;
    fetch_after(g);
  } catch (...) {
    --g.inside;
    if (on_cpu() && g.slot >= 0) in_slot_[size_t(g.slot)] = nullptr, g.slot = -1;  // reading it may have failed
    throw;
  }
}

void Streamer::Impl::leave(Door& door) noexcept {
  Group& g = *door.group;
  if (--g.inside > 0 || !door.last) return;
  try {
    autograd::NoGrad off;
    away(g);
    fetch_after(g);
  } catch (const Error&) {
    // A broken context, of which the next op will tell.
  }
}

void Streamer::Impl::away(Group& g) {
  if (!g.shown) return;
  g.shown = false;
  const bool written = memory_of(g.slot)->version != g.slot_version;
  if (written) counts_.written_back += g.weights.bring_back();
  on_cpu() ? host_->forget(g.slot) : slots_->read_until_here(g.slot);
  g.weights.show_home();
  if (!written && &g == last_ && next_of(before_last_, &g) == &g) return;  // stays for its next turn
  in_slot_[size_t(g.slot)] = nullptr;
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
      std::exchange(in_slot_[i], nullptr)->slot = -1;
      slot = int(i);
    }
  if (slot < 0) {
    SF_CHECK_AS(RuntimeError, !may_evict, g.name, ": all ", in_slot_.size(),
                " slots of streamed weights are in use by modules that call each other");
    return;
  }
  if (on_cpu()) {
    host_->fill(slot, g.weights);
    g.weights.sent();
  } else {
    StreamSlots::Filling filling(*slots_, slot);
    counts_.waits += staging_->send(g.weights, filling);
  }
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

StreamStatistics Streamer::Impl::statistics() const {
  StreamStatistics s = counts_;
  s.groups = int64_t(groups_.size());
  s.resident_bytes = kept_.bytes();
  for (auto& g : groups_)
    if (g.resident) ++s.resident_groups, s.resident_bytes += g.weights.bytes();
  if (slots_) s.slot_bytes = int64_t(slots_->bytes()) * slots_->count();
  if (host_) s.slot_bytes = int64_t(host_->bytes()) * host_->count();
  if (staging_) s.pinned_bytes = staging_->pinned_bytes();
  return s;
}

std::vector<std::string> Streamer::Impl::names(bool resident) const {
  std::vector<std::string> out;
  for (auto& g : groups_)
    if (g.resident == resident) out.push_back(g.name);
  return out;
}

std::vector<Streamer::Place> Streamer::Impl::places() const {
  std::vector<Place> out;
  for (const Group* g : streamed_)
    for (auto& door : g->doors) out.push_back({g->name, door->module, door.get()});
  return out;
}

// ----

Streamer::Streamer(Module& model, const StreamOptions& options) {
  {
    std::lock_guard guard(attached().lock);
    SF_CHECK(!attached().of.count(&model), model.type(), ": its weights are streamed already; take that off first");
  }
  impl_ = std::make_unique<Impl>(model, options);
  if (options.phases) options.phases->members.push_back(this);
  std::lock_guard guard(attached().lock);
  attached().of[&model] = this;
  set_held(model, true);
}

Streamer::~Streamer() {
  {
    std::lock_guard guard(attached().lock);
    attached().of.erase(&impl_->model);
    set_held(impl_->model, false);
  }
  if (auto& phases = impl_->options.phases) std::erase(phases->members, this);
}

Streamer* Streamer::of(const Module& model) {
  std::lock_guard guard(attached().lock);
  auto at = attached().of.find(&model);
  return at == attached().of.end() ? nullptr : at->second;
}

bool Streamer::lay_side_by_side(const Tensors& tensors) {
  if (tensors.empty()) return false;
  std::lock_guard guard(attached().lock);
  for (auto& [model, streamer] : attached().of)
    if (streamer->impl_->lay_side_by_side(tensors)) return true;
  return false;
}

void Streamer::offload() { impl_->offload(); }
void Streamer::load() { impl_->load(); }
bool Streamer::is_loaded() const { return impl_->loaded; }
Device Streamer::device() const { return impl_->options.device; }
const StreamOptions& Streamer::options() const { return impl_->options; }
StreamStatistics Streamer::statistics() const { return impl_->statistics(); }
std::vector<std::string> Streamer::resident_names() const { return impl_->names(true); }
std::vector<std::string> Streamer::streamed_names() const { return impl_->names(false); }
std::vector<Streamer::Place> Streamer::places() const { return impl_->places(); }

}  // namespace sf::nn
