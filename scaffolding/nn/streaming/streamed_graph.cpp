#include "scaffolding/nn/streaming/streamed_graph.h"

#include <algorithm>
#include <set>

#include "scaffolding/autograd/mode.h"
#include "scaffolding/io/read_ahead.h"
#include "scaffolding/nn/streaming/streamer_impl.h"

namespace sf::nn {

// ---- the capture

void StreamedPass::capture(const std::function<void()>& f, cuda::GraphPool pool, CaptureMode mode) {
  pool_ = pool ? pool : cuda::new_graph_pool(), mode_ = mode;
  Streamer::Impl& all = *all_;
  autograd::NoGrad off;
  for (Group* g : all.streamed_) all.away(*g);  // of a call that broke off
  auto end = [&] {
    over_ = true;
    for (Group* g : all.streamed_)
      if (g->shown) g->shown = false, g->weights.show_home();
    all.capturing_ = nullptr;
  };
  all.capturing_ = this;
  try {
    open(Begin::Call, 0);
    f();
    for (Group* g : all.streamed_) all.away(*g);
    if (error_) std::rethrow_exception(error_);
    stretches_.back().graph->capture_end();
  } catch (...) {
    end();
    stretches_.clear();
    throw;
  }
  end();
  for (Stretch& s : stretches_)
    if (s.graph->nodes() == 0) s.graph.reset();
  for (size_t i = 0; i < turns_.size(); ++i) {
    size_t& next = turns_[i].next = i;
    do next = (next + 1) % turns_.size();
    while (turns_[next].slot != turns_[i].slot);
  }
  all.passes_.push_back(this);
}

void StreamedPass::open(Begin begin, size_t turn) {
  if (!stretches_.empty()) stretches_.back().graph->capture_end();
  stretches_.push_back({begin, turn, std::make_unique<cuda::CudaGraph>(all_->options.device)});
  stretches_.back().graph->capture_begin(pool_, mode_);
}

// Slots take turns, so that each is filled while the others are read; also where the next call begins.
int StreamedPass::slot_for(const Group& g) const {
  const int count = all_->slots_->count(), last = turns_.empty() ? count - 1 : turns_.back().slot;
  if (!turns_.empty() && turns_.back().group == &g) return last;  // it stays for its next turn
  const bool ends = turns_.size() + 1 == all_->streamed_.size();  // where each has one turn
  int found = -1;
  for (int i = 1; i <= count; ++i) {
    const int slot = (last + i) % count;
    if (std::any_of(all_->streamed_.begin(), all_->streamed_.end(),
                    [&](const Group* other) { return other->shown && other->shown_in == slot; }))
      continue;
    if (!ends || slot != turns_[0].slot) return slot;
    found = slot;
  }
  if (found >= 0) return found;
  fail<RuntimeError>(g.name, ": all ", count, " slots of streamed weights are in use by modules that call each other");
}

void StreamedPass::enter(Group& g) {
  if (error_) std::rethrow_exception(error_);
  const int slot = slot_for(g);
  g.turn = turns_.size();
  turns_.push_back({&g, slot});
  open(Begin::Enter, g.turn);
  all_->show(g, slot);
}

void StreamedPass::leave(Group& g) {
  if (!over_) open(Begin::Leave, g.turn);
}

// ---- replays

void StreamedPass::replay() {
  SF_CHECK_AS(RuntimeError, is_current(),
              "StreamedGraph: weights of the model were written or moved since it was captured; capture it again");
  Streamer::Impl& all = *all_;
  autograd::NoGrad off;
  for (Group* g : all.streamed_) all.away(*g);  // of a call that broke off
  try {
    std::set<int> begun;
    for (size_t i = 0; i < turns_.size() && int(begun.size()) < all.slots_->count(); ++i)
      if (begun.insert(turns_[i].slot).second) want(i);
    for (const Stretch& s : stretches_) run(s);
  } catch (...) {
    if (all.slots_)
      for (int i = 0; i < all.slots_->count(); ++i) all.slots_->read_until_here(i);
    throw;
  }
}

void StreamedPass::run(const Stretch& s) {
  Streamer::Impl& all = *all_;
  if (s.begin == Begin::Enter) {
    all.slots_->read_from_here(turns_[s.turn].slot);
  } else if (s.begin == Begin::Leave) {
    all.slots_->read_until_here(turns_[s.turn].slot);
    want(turns_[s.turn].next);
    read_ahead(s.turn);
  }
  if (s.graph) s.graph->replay();
}

void StreamedPass::want(size_t turn) {
  const Turn& t = turns_[turn];
  if (all_->in_slot_[size_t(t.slot)] != t.group) all_->fill(*t.group, t.slot);
}

// Of groups that no slot waits for yet.
void StreamedPass::read_ahead(size_t behind) const {
  for (size_t i = 1; i <= kAhead; ++i) {
    const Group& g = *turns_[(behind + size_t(all_->slots_->count()) + i) % turns_.size()].group;
    if (g.weights.block()) continue;
    for (const Tensor& t : g.weights.tensors()) io::read_ahead(t.data_ptr(), t.nbytes());
  }
}

bool StreamedPass::is_current() const {
  return all_ && std::none_of(all_->streamed_.begin(), all_->streamed_.end(),
                              [](const Group* g) { return !g->shown && g->weights.changed_home(); });
}

void StreamedPass::drop() noexcept {
  all_ = nullptr;
  stretches_.clear();
  turns_.clear();
}

StreamedPass::~StreamedPass() {
  if (all_) std::erase(all_->passes_, this);
}

int64_t StreamedPass::graphs() const {
  return std::count_if(stretches_.begin(), stretches_.end(), [](auto& s) { return s.graph != nullptr; });
}

int64_t StreamedPass::nodes() const {
  int64_t all = 0;
  for (auto& s : stretches_) all += s.graph ? int64_t(s.graph->nodes()) : 0;
  return all;
}

// ----

StreamedGraph::StreamedGraph(Streamer& streamer, const std::function<void()>& f, const cuda::CaptureOptions& options) {
  Streamer::Impl& all = *streamer.impl_;
  const Device device = streamer.device();
  SF_CHECK(device.is_cuda(), "StreamedGraph: the model is on ", device, ", which has no graphs");
  SF_CHECK_AS(RuntimeError, !cuda::CudaGraph::recording(),
              "StreamedGraph: this thread captures a graph already; end that first");
  all.load();
  cuda::SideStream side(device);
  for (int i = 0; i < options.warmup; ++i) f();
  accelerator(device).synchronize(device.index);
  accelerator(device).empty_cache(device.index);  // the capture cannot take it back, and memory is scarce
  auto pass = std::make_unique<StreamedPass>(all);
  pass->capture(f, options.pool, options.mode);
  pass_ = std::move(pass);
}

StreamedGraph::~StreamedGraph() = default;
void StreamedGraph::replay() { pass_->replay(); }
bool StreamedGraph::is_current() const { return pass_->is_current(); }
int64_t StreamedGraph::graphs() const { return pass_->graphs(); }
int64_t StreamedGraph::nodes() const { return pass_->nodes(); }

}  // namespace sf::nn
