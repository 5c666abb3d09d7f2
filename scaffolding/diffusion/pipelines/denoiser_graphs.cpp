#include "scaffolding/diffusion/pipelines/denoiser_graphs.h"

#include <algorithm>
#include <bit>
#include <optional>

#include "scaffolding/autograd/autocast.h"
#include "scaffolding/autograd/mode.h"
#include "scaffolding/backend/cpu/lean_memory.h"
#include "scaffolding/backend/cudnn_settings.h"
#include "scaffolding/backend/precision.h"
#include "scaffolding/core/out_of_memory.h"
#include "scaffolding/diffusion/pipelines/weight_pages.h"
#include "scaffolding/models/parts/free_u.h"
#include "scaffolding/models/parts/packed_projections.h"
#include "scaffolding/nn/adapter.h"
#include "scaffolding/nn/conv.h"
#include "scaffolding/nn/streaming/residence.h"
#include "scaffolding/nn/streaming/streamer.h"

namespace sf::diffusion {

namespace {

bool same_kind(const Tensor& a, const Tensor& b) {
  if (!a || !b) return !a && !b;
  return a.dtype() == b.dtype() && a.device() == b.device() && a.shape() == b.shape() && a.strides() == b.strides();
}

// A graph is of one value of what the host reads.
bool same_setting(const DenoiserArgument& a, const DenoiserArgument& b) {
  return a.role != ArgumentRole::Setting || !a.tensor || a.tensor.to_vector() == b.tensor.to_vector();
}

// A tensor as it was written into a graph's: held, so that its address is nobody else's, with the count of writes.
struct Given {
  Tensor tensor;
  uint32_t version = 0;
  bool is(const Tensor& t) const {
    if (!t || !tensor) return !t && !tensor;
    return t.data_ptr() == tensor.data_ptr() && t.version() == version && same_kind(t, tensor);
  }
};

void add(std::vector<uint64_t>& words, const Tensor& t, bool with_version = true) {
  if (!t) return words.push_back(0);
  words.push_back(reinterpret_cast<uintptr_t>(t.data_ptr()));
  words.push_back(uint64_t(t.dtype()) << 32 | (with_version ? t.version() : 0));
  for (int64_t i = 0; i < t.ndim(); ++i) words.insert(words.end(), {uint64_t(t.size(i)), uint64_t(t.stride(i))});
}

}  // namespace

struct DenoiserGraphs::Graph {
  // One of them; goes last, after what lies in its memory.
  std::unique_ptr<cuda::CudaGraph> graph;
  std::unique_ptr<nn::StreamedGraph> streamed;
  DenoiserCall call;         // of tensors that the graph reads
  std::vector<Given> given;  // what each of them was written from
  bool keeps_context = false;
  models::ContextCache context;  // of the text among them
  Tensors outputs;
  int64_t run = 0;  // the last one that used it
  Words adapters;   // what was in the adapters' memory when the text's part was computed

  bool takes(const DenoiserCall& c, bool keeps) const {
    return keeps == keeps_context && std::equal(c.begin(), c.end(), call.begin(), call.end(),
                                                [](const DenoiserArgument& a, const DenoiserArgument& b) {
                                                  return a.name == b.name && a.role == b.role &&
                                                         same_kind(a.tensor, b.tensor) && same_setting(a, b);
                                                });
  }
  bool is_of(const nn::Streamer* streamer) const {
    return streamer ? streamed && streamed->is_current() : graph != nullptr;
  }
  void replay() { streamed ? streamed->replay() : graph->replay(); }
  bool has_text_of(const DenoiserCall& c) const {
    for (size_t i = 0; i < c.size(); ++i)
      if (c[i].role == ArgumentRole::Text && !given[i].is(c[i].tensor)) return false;
    return true;
  }
  void write(const DenoiserCall& c, int64_t this_run, const Words& adapters_now) {
    // a new run counts as a new text, whatever its address: weights may lie where others did
    bool context_changed = run != this_run || adapters != adapters_now;
    adapters = adapters_now;
    for (size_t i = 0; i < c.size(); ++i) {
      const Tensor& t = c[i].tensor;
      if (!t || given[i].is(t)) continue;
      call[i].tensor.copy_(t);
      given[i] = {t, t.version()};
      context_changed = context_changed || c[i].role == ArgumentRole::Text;
    }
    if (context_changed) context.refresh();
    run = this_run;
  }
};

DenoiserGraphs::DenoiserGraphs() = default;
DenoiserGraphs::~DenoiserGraphs() = default;

std::string DenoiserGraphs::why_not(Denoiser& denoiser) {
  models::Model* model = denoiser.model();
  if (!denoiser.device().is_cuda()) return "the denoiser is on " + denoiser.device().str();
  if (!model) return "the denoiser is called through Python";
  for (auto& m : nn::named_modules(*model)) {
    if (!m.name.empty() && nn::Streamer::of(*m.module))
      return "weights of the denoiser's " + m.name + " come and go by themselves";
    nn::Extension* e = m.module->extension();
    if (!m.module->has_hooks() && !(e && e->calls())) continue;
    return "the denoiser" + (m.name.empty() ? "" : "'s " + m.name) + " is called through hooks or Python";
  }
  return {};
}

namespace {
nn::Streamer* streamer_of(Denoiser& denoiser) {
  return denoiser.model() && denoiser.device().is_cuda() ? nn::Streamer::of(*denoiser.model()) : nullptr;
}
// Whether blocks of it pass through the device, to which it is brought back.
bool streams(Denoiser& denoiser) {
  nn::Streamer* streamer = denoiser.model() ? nn::Streamer::of(*denoiser.model()) : nullptr;
  if (streamer) streamer->load();  // in the midst of a run other networks may have taken its place
  return streamer && streamer->device().is_cuda() && !streamer->streamed_names().empty();
}
}  // namespace

// All that a capture depends on besides the inputs' shapes. Adapters are written in place (LoraPath): what is in their
// memory, a replay reads.
DenoiserGraphs::State DenoiserGraphs::state_of(Denoiser& denoiser) {
  struct Walk : nn::Visitor {
    Words &words, &adapters;
    Walk(Words& w, Words& a) : words(w), adapters(a) {}
    void parameter(std::string_view, const Tensor& t) override { add(words, t); }
    void buffer(std::string_view, const Tensor& t, bool) override { add(words, t); }
    void module(std::string_view name, nn::Module* m) override {
      // the root may be made anew around networks that stay (a UNet and its ControlNets)
      if (!name.empty()) words.push_back(reinterpret_cast<uintptr_t>(m));
      if (!m) return;
      nn::Descent down(*m);
      words.push_back(m->training);
      if (auto* level = dynamic_cast<models::TakesFreeU*>(m); level && level->free_u)
        for (double factor : {level->free_u->backbone, level->free_u->skip})
          words.push_back(std::bit_cast<uint64_t>(factor));
      if (auto* conv = dynamic_cast<nn::ConvNd*>(m)) words.push_back(std::hash<std::string>()(conv->padding_mode));
      if (auto adapter = m->adapter())
        adapter->each_tensor([this](const Tensor& t) {
          add(words, t, false);
          if (t) adapters.push_back(t.version());
        });
      m->visit_all(*this);
    }
  };
  const autocast::DeviceState& cast = autocast::of(DeviceType::CUDA);
  CudnnSettings cudnn = cudnn_settings();
  uint64_t settings = uint64_t(matmul_allow_tf32()) | uint64_t(cudnn.allow_tf32) << 1 | uint64_t(cudnn.enabled) << 2 |
                      uint64_t(cudnn.deterministic) << 3 | uint64_t(matmul_benchmark()) << 4;
  State state{{settings, cast.enabled ? 1 + uint64_t(cast.dtype) : 0}, {}};
  Walk(state.words, state.adapters).module("", denoiser.model());
  return state;
}

void DenoiserGraphs::clear() {
  graphs_.clear();
  pool_ = 0;
}

// The one that takes this call, or null.
DenoiserGraphs::Graph* DenoiserGraphs::graph_for(const DenoiserCall& call, bool keeps_context, int64_t run,
                                                 size_t texts) {
  auto take = [&](auto at) {
    graphs_.splice(graphs_.begin(), graphs_, at);
    return graphs_.front().get();
  };
  // With guidance in two calls a run has two texts of one shape: a graph for each, so that neither is computed again.
  // Runs that share calls have one, another whenever one of them joins or leaves: it is written into the same graph.
  auto oldest = graphs_.end();
  size_t of_this_run = 0;
  for (auto at = graphs_.begin(); at != graphs_.end(); ++at) {
    Graph& g = **at;
    if (!g.takes(call, keeps_context)) continue;
    if ((g.run == run && g.has_text_of(call)) || !keeps_context) return take(at);
    oldest = at;
    of_this_run += g.run == run;
  }
  if (oldest != graphs_.end() && ((*oldest)->run != run || of_this_run >= texts)) return take(oldest);
  return nullptr;
}

Tensors DenoiserGraphs::capture(Denoiser& denoiser, const DenoiserCall& call, bool keeps_context, int64_t run,
                                const Words& adapters) {
  if (graphs_.size() >= kMost) graphs_.pop_back();
  if (!pool_) pool_ = cuda::new_graph_pool();
  auto made = std::make_unique<Graph>();
  Graph& g = *made;
  g.keeps_context = keeps_context;
  g.run = run;
  g.adapters = adapters;
  g.call = call;
  for (auto& argument : g.call) {
    const Tensor t = argument.tensor;
    g.given.push_back({t, t ? t.version() : 0});
    if (!t) continue;
    argument.tensor = empty_strided(t.shape(), t.strides(), t.dtype(), t.device());
    argument.tensor.copy_(t);
  }
  const DenoiserCall& own = g.call;
  const Device device = denoiser.device();
  std::optional<models::ContextCache::Scope> scope;
  if (keeps_context) scope.emplace(g.context);
  // On the current stream, whose memory others use too; libraries are loaded, plans made and tables copied here, and
  // the text's part is computed.
  const Tensors result = denoiser.outputs(own);
  try {
    accelerator(device).empty_cache(device.index);  // the capture cannot take it back
    const cuda::CaptureOptions how{.warmup = 0, .pool = pool_, .mode = CaptureMode::ThreadLocal};
    auto f = [&] { g.outputs = denoiser.outputs(own); };
    if (auto* streamer = streamer_of(denoiser)) g.streamed = std::make_unique<nn::StreamedGraph>(*streamer, f, how);
    else g.graph = cuda::capture(f, how, device);
  } catch (const OutOfMemory&) {
    throw;  // which runs make do with
  } catch (const Error& e) {
    fail<RuntimeError>(
        "pipeline: the denoiser cannot be captured as a CUDA graph; capture=False runs it step by step: ", e.what());
  }
  ++captures_;
  graphs_.push_front(std::move(made));
  return result;
}

Tensors DenoiserGraphs::outputs(Denoiser& denoiser, const DenoiserCall& call, bool keeps_context, int64_t run,
                                size_t texts) {
  if (streams(denoiser)) keeps_context = false;
  nn::Streamer* streamer = streamer_of(denoiser);
  State now = state_of(denoiser);
  if (now.words != state_) {
    clear();
    state_ = std::move(now.words);
  }
  std::erase_if(graphs_, [&](auto& g) { return !g->is_of(streamer); });
  if (Graph* g = graph_for(call, keeps_context, run, texts)) {
    g->write(call, run, now.adapters);
    g->replay();
    ++replays_;
    Tensors out;
    for (auto& t : g->outputs) out.push_back(t.clone());  // schedulers keep results, which the next replay overwrites
    return out;
  }
  return capture(denoiser, call, keeps_context, run, now.adapters);
}

DenoiserRun::DenoiserRun(Ref<Denoiser> denoiser, Ref<DenoiserGraphs> graphs, bool captures, bool keeps_context)
    : denoiser_(std::move(denoiser)),
      graphs_(std::move(graphs)),
      keeps_context_(keeps_context),
      run_(graphs_->begin_run()) {
  const bool in_slots = streams(*denoiser_), native = DenoiserGraphs::why_not(*denoiser_).empty();
  captures_ = captures && native;
  is_cast_ = denoiser_->model() && nn::has_cast_weights(*denoiser_->model());
  if (denoiser_->model()) weight_bytes_ = weight_bytes(*denoiser_);
  // Convolutions read weights channels-last: of another order each replay would make a copy. Those in slots may be
  // pages of a file, which stay as they are.
  if (captures_ && !in_slots) nn::to(*denoiser_->model(), {.memory_format = MemoryFormat::ChannelsLast});
  // With and without graphs, whose numbers are then those of the same products.
  if (native) models::pack_projections(*denoiser_->model());
}

std::shared_ptr<DenoiserGraphs> no_graphs_yet() { return std::make_shared<DenoiserGraphs>(); }

std::shared_ptr<DenoiserRun> DenoiserRun::another() const {
  auto made = std::make_shared<DenoiserRun>(denoiser_, graphs_, captures_, keeps_context_);
  made->texts_ = 1;
  return made;
}

bool DenoiserRun::stop_capturing() {
  if (captures_) graphs_->clear();
  return std::exchange(captures_, false);
}

bool DenoiserRun::replays() const { return captures_ && !cuda::CudaGraph::recording() && !autograd::grad_enabled(); }

template <class F> auto DenoiserRun::called(const F& f) {
  std::optional<models::ContextCache::Scope> scope;
  if (keeps_context_) scope.emplace(context_);
  const cpu::KeptWhole whole(weight_bytes_);
  return f();
}

Tensor DenoiserRun::predict(const DenoiserCall& call) {
  if (replays()) return outputs(call).at(0);
  return called([&] { return denoiser_->predict(call); });
}

Tensors DenoiserRun::outputs(const DenoiserCall& call) {
  if (!replays()) return called([&] { return denoiser_->outputs(call); });
  const bool keeps = keeps_context_ && !is_cast_;  // the text's part of cast weights is within calls
  return graphs_->outputs(*denoiser_, call, keeps, run_, texts_);
}

}  // namespace sf::diffusion
