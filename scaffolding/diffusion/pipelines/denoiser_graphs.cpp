#include "scaffolding/diffusion/pipelines/denoiser_graphs.h"

#include <algorithm>
#include <optional>

#include "scaffolding/autograd/autocast.h"
#include "scaffolding/autograd/mode.h"
#include "scaffolding/backend/cudnn_settings.h"
#include "scaffolding/backend/precision.h"
#include "scaffolding/core/error.h"
#include "scaffolding/models/parts/packed_projections.h"

namespace sf::diffusion {

namespace {

constexpr size_t kInputs = 6;
using Inputs = std::array<Tensor, kInputs>;

Inputs inputs_of(const DenoiserInput& in) { return {in.sample, in.timestep, in.encoder_hidden_states, in.timestep_cond, in.text_embeds, in.time_ids}; }
DenoiserInput input_of(const Inputs& t) { return {t[0], t[1], t[2], t[3], t[4], t[5]}; }
constexpr size_t kContext = 2;

bool same_kind(const Tensor& a, const Tensor& b) {
  if (!a || !b) return !a && !b;
  return a.dtype() == b.dtype() && a.device() == b.device() && a.shape() == b.shape() && a.strides() == b.strides();
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

void add(std::vector<uint64_t>& words, const Tensor& t) {
  if (!t) return words.push_back(0);
  words.push_back(reinterpret_cast<uintptr_t>(t.data_ptr()));
  words.push_back(uint64_t(t.dtype()) << 32 | t.version());
  for (int64_t i = 0; i < t.ndim(); ++i) words.insert(words.end(), {uint64_t(t.size(i)), uint64_t(t.stride(i))});
}

}  // namespace

struct DenoiserGraphs::Graph {
  std::unique_ptr<cuda::CudaGraph> graph;  // goes last, after what lies in its memory
  Inputs inputs;                           // read by the graph
  std::array<Given, kInputs> given;
  bool keeps_context = false;
  models::ContextCache context;  // of inputs[kContext]
  Tensor output;
  int64_t run = 0;  // the last one that used it

  bool takes(const Inputs& in, bool keeps) const {
    return keeps == keeps_context && std::equal(in.begin(), in.end(), inputs.begin(), [](const Tensor& a, const Tensor& b) { return same_kind(a, b); });
  }
  void write(const Inputs& in, int64_t this_run) {
    bool context_changed = run != this_run;  // a new run counts as a new text, whatever its address: weights may lie where others did
    for (size_t i = 0; i < kInputs; ++i) {
      if (!in[i] || given[i].is(in[i])) continue;
      inputs[i].copy_(in[i]);
      given[i] = {in[i], in[i].version()};
      context_changed = context_changed || i == kContext;
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
    nn::Extension* e = m.module->extension();
    if (!m.module->has_hooks() && !(e && e->calls())) continue;
    return "the denoiser" + (m.name.empty() ? "" : "'s " + m.name) + " is called through hooks or Python";
  }
  return {};
}

// All that a capture depends on besides the inputs' shapes.
DenoiserGraphs::Words DenoiserGraphs::state_of(Denoiser& denoiser) {
  struct Walk : nn::Visitor {
    Words& words;
    explicit Walk(Words& w) : words(w) {}
    void parameter(std::string_view, const Tensor& t) override { add(words, t); }
    void buffer(std::string_view, const Tensor& t, bool) override { add(words, t); }
    void module(std::string_view, nn::Module* m) override {
      words.push_back(reinterpret_cast<uintptr_t>(m));
      if (!m) return;
      nn::Descent down(*m);
      words.push_back(m->training);
      m->visit_all(*this);
    }
  };
  const autocast::DeviceState& cast = autocast::of(DeviceType::CUDA);
  CudnnSettings cudnn = cudnn_settings();
  uint64_t settings = uint64_t(matmul_allow_tf32()) | uint64_t(cudnn.allow_tf32) << 1 | uint64_t(cudnn.enabled) << 2 | uint64_t(cudnn.deterministic) << 3 |
                      uint64_t(matmul_benchmark()) << 4;
  Words words{settings, cast.enabled ? 1 + uint64_t(cast.dtype) : 0};
  Walk(words).module("", denoiser.model());
  return words;
}

void DenoiserGraphs::clear() {
  graphs_.clear();
  pool_ = 0;
}

DenoiserGraphs::Graph& DenoiserGraphs::graph_for(Denoiser& denoiser, const DenoiserInput& input, bool keeps_context) {
  Inputs in = inputs_of(input);
  auto take = [&](auto at) -> Graph& {
    graphs_.splice(graphs_.begin(), graphs_, at);
    return *graphs_.front();
  };
  // With guidance in two calls a run has two texts of one shape: a graph for each, so that neither is computed again.
  auto oldest = graphs_.end();
  size_t of_this_run = 0;
  for (auto at = graphs_.begin(); at != graphs_.end(); ++at) {
    Graph& g = **at;
    if (!g.takes(in, keeps_context)) continue;
    if (g.run == run_ && g.given[kContext].is(in[kContext])) return take(at);
    oldest = at;
    of_this_run += g.run == run_;
  }
  if (oldest != graphs_.end() && ((*oldest)->run != run_ || of_this_run >= 2)) return take(oldest);

  if (graphs_.size() >= kMost) graphs_.pop_back();
  if (!pool_) pool_ = cuda::new_graph_pool();
  auto made = std::make_unique<Graph>();
  Graph& g = *made;
  g.keeps_context = keeps_context;
  g.run = run_;
  for (size_t i = 0; i < kInputs; ++i) {
    if (!in[i]) continue;
    g.inputs[i] = empty_strided(in[i].shape(), in[i].strides(), in[i].dtype(), in[i].device());
    g.inputs[i].copy_(in[i]);
    g.given[i] = {in[i], in[i].version()};
  }
  DenoiserInput own = input_of(g.inputs);
  std::optional<models::ContextCache::Scope> scope;
  if (keeps_context) scope.emplace(g.context);
  // On the current stream, whose memory others use too; libraries are loaded, plans made and tables copied here, and the text's part is computed.
  denoiser.predict(own);
  try {
    accelerator(in[0].device()).empty_cache(in[0].device().index);  // the capture cannot take it back
    g.graph = cuda::capture([&] { g.output = denoiser.predict(own); }, {.warmup = 0, .pool = pool_, .mode = CaptureMode::ThreadLocal}, in[0].device());
  } catch (const Error& e) {
    fail<RuntimeError>("pipeline: the denoiser cannot be captured as a CUDA graph; capture=False runs it step by step: ", e.what());
  }
  ++captures_;
  graphs_.push_front(std::move(made));
  return g;
}

Tensor DenoiserGraphs::predict(Denoiser& denoiser, const DenoiserInput& input, bool keeps_context) {
  if (Words now = state_of(denoiser); now != state_) {
    clear();
    state_ = std::move(now);
  }
  Graph& g = graph_for(denoiser, input, keeps_context);
  g.write(inputs_of(input), run_);
  g.graph->replay();
  ++replays_;
  return g.output.clone();  // schedulers keep results, and the next replay overwrites this one
}

DenoiserRun::DenoiserRun(Denoiser& denoiser, DenoiserGraphs& graphs, bool captures, bool keeps_context)
    : denoiser_(denoiser), graphs_(graphs), captures_(captures && DenoiserGraphs::why_not(denoiser).empty()), keeps_context_(keeps_context) {
  graphs_.begin_run();
  // Convolutions read weights channels-last: of another order each replay would make a copy.
  if (captures_) nn::to(*denoiser.model(), {.memory_format = MemoryFormat::ChannelsLast});
  // With and without graphs, whose numbers are then those of the same products.
  if (DenoiserGraphs::why_not(denoiser).empty()) models::pack_projections(*denoiser.model());
}

Tensor DenoiserRun::predict(const DenoiserInput& input) {
  if (captures_ && !cuda::CudaGraph::recording() && !autograd::grad_enabled()) return graphs_.predict(denoiser_, input, keeps_context_);
  std::optional<models::ContextCache::Scope> scope;
  if (keeps_context_) scope.emplace(context_);
  return denoiser_.predict(input);
}

}  // namespace sf::diffusion
