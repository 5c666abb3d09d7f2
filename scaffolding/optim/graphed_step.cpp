#include "scaffolding/optim/graphed_step.h"

#include <algorithm>

#include "scaffolding/autograd/autocast.h"
#include "scaffolding/autograd/mode.h"
#include "scaffolding/autograd/set_data.h"
#include "scaffolding/core/error.h"

namespace sf::optim {

struct GraphedStep::Graph {
  std::unique_ptr<cuda::CudaGraph> graph;  // goes last, after what lies in its memory
  Tensors inputs, outputs;

  bool takes(const Tensors& in) const {
    return std::equal(in.begin(), in.end(), inputs.begin(), inputs.end(), [](const Tensor& a, const Tensor& b) {
      return a.dtype() == b.dtype() && a.device() == b.device() && a.shape() == b.shape() && a.strides() == b.strides();
    });
  }
  void write(const Tensors& in) {
    autograd::NoGrad off;
    for (size_t i = 0; i < in.size(); ++i) inputs[i].copy_(in[i].detach());
  }
};

GraphedStep::GraphedStep(Step step) : step_(std::move(step)) { SF_CHECK(step_, "GraphedStep: needs a step function"); }
GraphedStep::~GraphedStep() = default;

void GraphedStep::reset() {
  graphs_.clear();
  pool_ = 0;
}

Tensors GraphedStep::operator()(const Tensors& in) {
  SF_CHECK(!in.empty(), "GraphedStep: needs inputs, whose shapes tell steps apart");
  for (const Tensor& t : in)
    SF_CHECK(t && t.device().is_cuda() && t.device() == in[0].device(),
             "GraphedStep: inputs must be tensors on one CUDA device, got ", t ? t.device().str() : "none");
  if (moves_ != autograd::data_moves()) reset();
  Tensors results = run(in);
  moves_ = autograd::data_moves();  // the step's own are part of the graph
  return results;
}

Tensors GraphedStep::run(const Tensors& in) {
  auto at = std::find_if(graphs_.begin(), graphs_.end(), [&](auto& g) { return g->takes(in); });
  if (at == graphs_.end()) {
    Tensors results = step_(in);
    for (Tensor& t : results) t = t ? t.detach() : t;
    ++eager_;
    if (graphs_.size() >= kMost) graphs_.pop_back();
    auto made = std::make_unique<Graph>();
    for (const Tensor& t : in) made->inputs.push_back(empty_strided(t.shape(), t.strides(), t.dtype(), t.device()));
    graphs_.push_front(std::move(made));
    return results;
  }
  graphs_.splice(graphs_.begin(), graphs_, at);
  Graph& g = *graphs_.front();
  g.write(in);
  if (!g.graph) {
    SF_CHECK_AS(RuntimeError, !autocast::active() || !autocast::state().cache,
                "GraphedStep: autocast keeps casts of weights until it ends, which replays would go on reading; enter "
                "it inside of the step");
    if (!pool_) pool_ = cuda::new_graph_pool();
    accelerator(in[0].device()).empty_cache(in[0].device().index);  // the capture cannot take it back
    g.graph = cuda::capture([&] { g.outputs = step_(g.inputs); },
                            {.warmup = 0, .pool = pool_, .mode = CaptureMode::ThreadLocal}, in[0].device());
    ++captures_;
  }
  g.graph->replay();
  ++replays_;
  autograd::NoGrad off;
  Tensors results;
  for (const Tensor& t : g.outputs) results.push_back(t ? t.detach().clone() : t);  // the next replay overwrites them
  return results;
}

}  // namespace sf::optim
