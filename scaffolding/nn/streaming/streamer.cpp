#include "scaffolding/nn/streaming/streamer.h"

#include <algorithm>
#include <mutex>
#include <numeric>

#include "scaffolding/autograd/mode.h"
#include "scaffolding/backend/free_memory.h"
#include "scaffolding/io/file.h"
#include "scaffolding/io/upload_ring.h"
#include "scaffolding/nn/streaming/stream_footprint.h"
#include "scaffolding/nn/streaming/streamer_impl.h"

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
}  // namespace

Streamer::Impl::Impl(Module& m, const StreamOptions& o) : model(m), options(o) {
  SF_CHECK(o.slots >= 3 && o.slots <= 64, "stream: slots must lie between 3 and 64, got ", o.slots);
  SF_CHECK(o.resident_bytes >= 0 && o.pinned_bytes >= 0, "stream: bytes must not be negative, got resident ",
           o.resident_bytes, ", pinned ", o.pinned_bytes);
  SF_CHECK(o.device.is_cpu() || o.device.is_cuda(), "stream: goes to a GPU or the CPU, got ", o.device);
  if (o.device.is_cuda()) accelerator(o.device);  // what is missing is said before anything moves
  StreamGroups found = stream_groups(m, o.level, o.blocks_per_group, o.only);
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
  drop_passes();
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
  drop_passes();
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
    if (memory_is_short()) lean_.emplace();
    read_residents();
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

// In the order in which they were called the first time; before that, in the order of the tree.
void Streamer::Impl::read_residents() {
  std::vector<PageReader::Range> ranges;
  auto add = [&](const HeldWeights& weights) {
    for (auto& p : weights.parts())
      if (p.home.nbytes() && io::is_mapped(p.home.data_ptr()))
        ranges.emplace_back(static_cast<const char*>(p.home.data_ptr()), p.home.nbytes());
  };
  add(kept_);
  std::vector<const Group*> order;
  for (const Group& g : groups_)
    if (g.resident) order.push_back(&g);
  std::stable_sort(order.begin(), order.end(), [](auto* a, auto* b) { return a->order < b->order; });
  for (const Group* g : order) add(g->weights);
  page_reader_.start(std::move(ranges));
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

// Whether the weights of all phases are more than the host has free: what one phase leaves in the page cache pushes out
// what the next one reads again and again.
bool Streamer::Impl::memory_is_short() const {
  int64_t bytes = options.phases ? 0 : counts_.weight_bytes;
  if (options.phases)
    for (Streamer* other : options.phases->members) bytes += other->impl_->counts_.weight_bytes;
  return size_t(bytes) > free_host_memory().free;
}

void Streamer::Impl::offload() {
  if (!loaded) return;
  loaded = false;
  page_reader_.stop();
  drop_passes();
  for (Group* g : streamed_) {
    away(*g);
    g->slot = -1;
  }
  in_slot_.assign(in_slot_.size(), nullptr);
  slots_.reset(), host_.reset();
  if (on_cpu()) {
    kept_.release_pages(lean_.has_value());
    for (Group& g : groups_)
      if (g.resident) g.weights.release_pages(lean_.has_value());
    if (lean_) cpu::LeanMemory::give_back();
    lean_.reset();
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
  if (go.empty()) return 0;
  page_reader_.stop();
  drop_passes();
  for (Group* g : go) g->resident = false;
  list_streamed();
  try {
    if (loaded)
      for (Group* g : go) on_cpu() ? g->weights.release_pages() : g->weights.move_home();
    pin_streamed();
    forget_order();
    if (loaded && !on_cpu()) {
      for (Group* g : streamed_) g->slot = -1;
      in_slot_.assign(in_slot_.size(), nullptr);
      make_slots();
      fetch_first();
    }
  } catch (...) {
    for (Group* g : go) forget(*g), g->resident = true;
    list_streamed();
    forget_order();
    offload();
    throw;
  }
  return freed;
}

bool Streamer::Impl::lay_side_by_side(const Tensors& tensors) {
  if (on_cpu()) return false;
  if (kept_.holds(tensors[0])) {
    if (!kept_.lie_side_by_side(tensors)) drop_passes();
    return kept_.lay_side_by_side(tensors);
  }
  for (Group& g : groups_) {
    if (!g.weights.holds(tensors[0])) continue;
    if (g.weights.lie_side_by_side(tensors)) return true;
    if (g.shown) return false;
    if (slots_) slots_->wait_for_copies();  // they read the homes, which may move
    forget(g);
    drop_passes();
    return g.weights.lay_side_by_side(tensors);
  }
  return false;
}

void Streamer::Impl::drop_passes() noexcept {
  for (StreamedPass* pass : std::exchange(passes_, {})) pass->drop();
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
const std::vector<ResidencePlace>& Streamer::places() const { return impl_->places; }

}  // namespace sf::nn
