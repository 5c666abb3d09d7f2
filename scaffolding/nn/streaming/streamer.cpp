#include "scaffolding/nn/streaming/streamer.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <numeric>
#include <unordered_set>

#include "scaffolding/autograd/mode.h"
#include "scaffolding/backend/cuda_graph.h"
#include "scaffolding/backend/free_memory.h"
#include "scaffolding/io/read_ahead.h"
#include "scaffolding/io/upload_ring.h"
#include "scaffolding/nn/streaming/held_weights.h"
#include "scaffolding/nn/streaming/host_slots.h"
#include "scaffolding/nn/streaming/residence.h"
#include "scaffolding/nn/streaming/stream_footprint.h"
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
  int64_t evict(int64_t bytes);
  bool lay_side_by_side(const Tensors& tensors);
  bool holds_any(const std::unordered_set<TensorImpl*>& tensors) const;
  bool loaded = false;
  StreamStatistics statistics() const;
  std::vector<std::string> names(bool resident) const;

  Module& model;
  const StreamOptions options;
  std::vector<Place> places;

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
    void enter() override { all->begin(); }
    void leave() noexcept override { --all->calls_; }
  };

  bool on_cpu() const { return options.device.is_cpu(); }
  void choose_residents();
  void list_streamed();
  void pin_streamed();
  void make_slots();
  size_t largest_streamed() const;
  void fetch_first();
  void forget_order();
  std::vector<Group*> choose_evicted(int64_t bytes, int64_t& freed);
  void open_doors();
  void hang_bells();
  void close_all() noexcept;
  void begin();
  bool in_call() const;
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
  int calls_ = 0;       // under way, that bells know of
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
    pin_streamed();
    open_doors();
    hang_bells();
    if (options.load_now) load();
  } catch (...) {
    close_all();
    throw;
  }
}

Streamer::Impl::~Impl() {
  autograd::NoGrad off;
  close_all();
  try {
    offload();
  } catch (const Error&) {
    // A broken context: weights that it held are lost.
  }
}

void Streamer::Impl::choose_residents() {
  std::vector<int64_t> bytes;
  for (Group& g : groups_) bytes.push_back(g.weights.bytes());
  const auto footprint = stream_footprint(bytes, options.resident_bytes, options.slots);
  for (size_t i = 0; i < groups_.size(); ++i) groups_[i].resident = footprint.stays[i];
  list_streamed();
}

void Streamer::Impl::list_streamed() {
  streamed_.clear();
  for (Group& g : groups_)
    if (on_cpu() && !g.weights.in_files()) g.resident = true;  // it takes memory in any case
  for (Group& g : groups_)
    if (!g.resident) streamed_.push_back(&g);
}

size_t Streamer::Impl::largest_streamed() const {
  size_t largest = 0;
  for (const Group* g : streamed_) largest = std::max(largest, g->weights.laid_out_bytes());
  return largest;
}

void Streamer::Impl::pin_streamed() {
  if (!staging_) return;
  std::vector<HeldWeights*> all;
  for (Group* g : streamed_) all.push_back(&g->weights);
  staging_->pin(all, largest_streamed(), options.pin_weights);
}

// Resident groups have doors too, so that calls under way are known.
void Streamer::Impl::open_doors() {
  for (Group& g : groups_)
    for (Module* owner : g.owners) {
      auto door = std::make_unique<Door>();
      door->all = this, door->group = &g, door->last = owner == g.owners.back(), door->module = owner;
      add_residence(*owner, door.get());
      places.push_back({g.name, owner, door.get()});
      g.doors.push_back(std::move(door));
    }
}

// On the root, and its children: an autoencoder is not called but encodes and decodes.
void Streamer::Impl::hang_bells() {
  std::vector<Module*> at{&model};
  for (auto& child : named_children(model)) at.push_back(child.module);
  for (Module* m : at) {
    const bool has_door = std::any_of(groups_.begin(), groups_.end(), [&](Group& g) {
      return std::find(g.owners.begin(), g.owners.end(), m) != g.owners.end();
    });
    if (has_door) continue;
    bells_.push_back(std::make_unique<Bell>());
    bells_.back()->all = this, bells_.back()->module = m;
    add_residence(*m, bells_.back().get());
    places.push_back({"", m, bells_.back().get()});
  }
}

void Streamer::Impl::close_all() noexcept {
  for (Group& g : groups_) {
    for (auto& door : g.doors) remove_residence(*door->module, door.get());
    g.doors.clear();
  }
  for (auto& bell : bells_) remove_residence(*bell->module, bell.get());
  bells_.clear();
}

void Streamer::Impl::begin() {
  load();
  if (on_cpu()) kept_.refuse_changed();
  ++calls_;
}

bool Streamer::Impl::in_call() const {
  return calls_ > 0 || std::any_of(groups_.begin(), groups_.end(), [](auto& g) { return g.inside > 0; });
}

void Streamer::Impl::make_slots() {
  if (streamed_.empty()) return;
  const size_t bytes = largest_streamed();
  if (slots_ && slots_->bytes() >= bytes) return;
  for (Group* g : streamed_) away(*g), g->slot = -1;
  slots_.reset();
  in_slot_.clear();
  slots_ = std::make_unique<StreamSlots>(options.device, options.slots, bytes, options.use_stream);
  in_slot_.assign(size_t(options.slots), nullptr);
}

void Streamer::Impl::load() {
  if (loaded) return;
  autograd::NoGrad off;
  if (options.phases)
    for (Streamer* other : options.phases->members)
      if (other->impl_.get() != this) other->offload();
  if (on_cpu()) {
    loaded = true;
    for (Group* g : streamed_) g->weights.release_pages();
    return fetch_first();
  }
  size_t bytes = size_t(kept_.bytes());
  for (Group& g : groups_)
    if (g.resident) bytes += size_t(g.weights.bytes());
  loaded = true;  // from here on offload() has what to undo
  try {
    make_slots();
    auto ring = io::UploadRing::of(options.device, bytes);
    kept_.move_to(options.device, ring.get());
    for (Group& g : groups_)
      if (g.resident) g.weights.move_to(options.device, ring.get());
    if (ring) ring->finish();
    fetch_first();
  } catch (...) {
    offload();
    throw;
  }
}

void Streamer::Impl::fetch_first() {
  if (streamed_.empty()) return;
  fetch(*streamed_[0], false);
  fetch_after(*streamed_[0]);
}

void Streamer::Impl::forget_order() {
  last_ = before_last_ = first_ = nullptr;
  entered_ = 0;
  for (Group& g : groups_) g.next.clear(), g.was_entered = false;
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
  if (on_cpu()) {
    kept_.release_pages();
    for (Group& g : groups_)
      if (g.resident) g.weights.release_pages();
  }
  kept_.move_home();
  for (Group& g : groups_)
    if (g.resident) g.weights.move_home();
  last_ = before_last_ = nullptr;
}

// Which groups go, of those that stay: as few as give the bytes, spread as they were chosen.
std::vector<Streamer::Impl::Group*> Streamer::Impl::choose_evicted(int64_t bytes, int64_t& freed) {
  std::vector<Group*> staying;
  std::vector<int64_t> sizes;
  for (Group& g : groups_)
    if (g.resident) staying.push_back(&g), sizes.push_back(g.weights.bytes());
  const int64_t all = std::accumulate(sizes.begin(), sizes.end(), int64_t(0));
  const int64_t slots = options.slots, before = slots * int64_t(largest_streamed());
  std::vector<Group*> best;
  freed = 0;
  for (int64_t stay = all - bytes, left = all; freed < bytes && left > 0; stay = left - 1) {
    const std::vector<bool> stays = spread_evenly(sizes, std::max<int64_t>(stay, 0));
    std::vector<Group*> go;
    size_t largest = largest_streamed();
    left = 0;
    for (size_t i = 0; i < staying.size(); ++i) {
      if (stays[i]) left += sizes[i];
      else go.push_back(staying[i]), largest = std::max(largest, staying[i]->weights.laid_out_bytes());
    }
    const int64_t gives = all - left - (slots * int64_t(largest) - before);
    if (gives > freed) freed = gives, best = std::move(go);
  }
  return best;
}

int64_t Streamer::Impl::evict(int64_t bytes) {
  SF_CHECK(bytes >= 0, "evict: bytes must not be negative, got ", bytes);
  SF_CHECK_AS(RuntimeError, !in_call(), "evict: a call of ", model.type(),
              " is under way, which may be using them; evict between calls");
  autograd::NoGrad off;
  if (!on_cpu())
    for (Group* g : streamed_) away(*g);  // of a call that broke off
  int64_t freed = 0;
  const std::vector<Group*> go = choose_evicted(bytes, freed);
  for (Group* g : go) g->resident = false;
  list_streamed();
  try {
    if (loaded)
      for (Group* g : go) on_cpu() ? g->weights.release_pages() : g->weights.move_home();
    if (!go.empty()) pin_streamed(), forget_order();
    if (loaded && !on_cpu() && !go.empty()) {
      for (Group* g : streamed_) g->slot = -1;
      in_slot_.assign(in_slot_.size(), nullptr);
      make_slots();
      fetch_first();
    }
  } catch (...) {
    for (Group* g : go) {
      if (g->slot >= 0) in_slot_[size_t(g->slot)] = nullptr, g->slot = -1;
      g->resident = true;
    }
    list_streamed();
    forget_order();
    offload();
    throw;
  }
  return freed;
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
    if (autograd::grad_enabled() && !g.resident)
      for (const Tensor& t : g.weights.tensors())
        SF_CHECK_AS(RuntimeError, !t.requires_grad(), g.name,
                    ": its weights are streamed, and leave before a gradient could be computed through them: call the "
                    "model under no_grad, or take the offloading off");
    autograd::NoGrad off;
    load();
    if (g.resident) return;
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
  if (--g.inside > 0 || !door.last || g.resident) return;
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

bool Streamer::Impl::holds_any(const std::unordered_set<TensorImpl*>& tensors) const {
  auto any = [&](const HeldWeights& w) {
    return std::any_of(w.tensors().begin(), w.tensors().end(), [&](auto& t) { return tensors.count(t.impl()); });
  };
  return any(kept_) || std::any_of(groups_.begin(), groups_.end(), [&](auto& g) { return any(g.weights); });
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

// ----

Streamer::Streamer(Module& model, const StreamOptions& options) {
  {
    std::unordered_set<TensorImpl*> tensors;
    for (auto& p : named_parameters(model)) tensors.insert(p.tensor.impl());
    for (auto& b : named_buffers(model)) tensors.insert(b.tensor.impl());
    std::lock_guard guard(attached().lock);
    for (auto& [other, streamer] : attached().of)
      SF_CHECK(other != &model && !streamer->impl_->holds_any(tensors), model.type(),
               ": its weights are streamed already; take that off first");
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
int64_t Streamer::evict(int64_t bytes) { return impl_->evict(bytes); }
void Streamer::load() { impl_->load(); }
bool Streamer::is_loaded() const { return impl_->loaded; }
Device Streamer::device() const { return impl_->options.device; }
const StreamOptions& Streamer::options() const { return impl_->options; }
StreamStatistics Streamer::statistics() const { return impl_->statistics(); }
std::vector<std::string> Streamer::resident_names() const { return impl_->names(true); }
std::vector<std::string> Streamer::streamed_names() const { return impl_->names(false); }
const std::vector<Streamer::Place>& Streamer::places() const { return impl_->places; }

}  // namespace sf::nn
