// DenoiserGraphs: a denoiser's calls as CUDA graphs, one for each shape of its inputs. A call writes the inputs into
// the graph's own tensors, replays, and hands out a copy of the result: a step costs one launch instead of some
// hundred, with the same numbers.
// Shared by the pipelines of the same networks and kept from call to call. Used by one thread at a time.
#pragma once
#include <list>

#include "scaffolding/backend/cuda_graph.h"
#include "scaffolding/diffusion/pipelines/components.h"
#include "scaffolding/models/parts/context_cache.h"
#include "scaffolding/nn/streaming/streamed_graph.h"

namespace sf::diffusion {

class DenoiserGraphs {
 public:
  // Graphs that are kept; the one that was longest without use goes first. They share their memory. A server's calls
  // have as many shapes as pictures at a time (8 where nobody says otherwise), beside those of other sizes.
  static constexpr size_t kMost = 12;
  struct Statistics {
    int64_t captures = 0, replays = 0;  // since this object was made
    size_t kept = 0;
  };
  DenoiserGraphs();
  ~DenoiserGraphs();
  DenoiserGraphs(const DenoiserGraphs&) = delete;
  DenoiserGraphs& operator=(const DenoiserGraphs&) = delete;

  // Why calls of this denoiser are no graphs: it is on the CPU, Python's, or has hooks, which see every call; or
  // weights of a part of it come and go by themselves. Empty where they are.
  static std::string why_not(Denoiser& denoiser);

  int64_t begin_run() { return ++runs_; }  // the number of a run, for which what is made of the text is computed anew
  // denoiser.predict(call) of that run. Graphs of other weights, modes and dtypes than the denoiser has now, and of
  // adapters in other memory, are dropped. keeps_context: what is made of the text is computed once a run, outside of
  // the graph (models::ContextCache), but for denoisers whose weights pass through the device, where it would be their
  // weights' way once more. texts: of one shape that the run has in turn, each with a graph; more take the place of
  // others in theirs.
  Tensors outputs(Denoiser& denoiser, const DenoiserCall& call, bool keeps_context, int64_t run, size_t texts);
  void clear();  // gives their memory back
  Statistics statistics() const { return {captures_, replays_, graphs_.size()}; }

 private:
  struct Graph;
  using Words = std::vector<uint64_t>;
  struct State {
    Words words, adapters;
  };
  static State state_of(Denoiser& denoiser);
  Graph* graph_for(const DenoiserCall& call, bool keeps_context, int64_t run, size_t texts);
  // The result of the call that comes before the capture.
  Tensors capture(Denoiser& denoiser, const DenoiserCall& call, bool keeps_context, int64_t run, const Words& adapters);

  std::list<std::unique_ptr<Graph>> graphs_;  // the last used first
  Words state_;                               // of the weights that they read
  cuda::GraphPool pool_ = 0;
  int64_t runs_ = 0, captures_ = 0, replays_ = 0;
};

std::shared_ptr<DenoiserGraphs> no_graphs_yet();

// A denoiser as a run calls it: captured, and with its text kept, where the options say so.
// Runs of one denoiser may take turns.
class DenoiserRun final : public Denoiser {
 public:
  DenoiserRun(Ref<Denoiser> denoiser, Ref<DenoiserGraphs> graphs, bool captures, bool keeps_context);
  Tensor predict(const DenoiserCall& call) override;
  Tensors outputs(const DenoiserCall& call) override;
  // A call's text is of these parts: see ContextCache::joins.
  void text_joins(const Tensor& text, const std::vector<Tensor>& parts) { context_.joins(text, parts); }
  // The same for batched calls of other shapes and of texts that change: a graph for each shape.
  std::shared_ptr<DenoiserRun> another() const;
  // What captured calls take is given back, and the next ones are not captured. False where none were.
  bool stop_capturing();
  io::Object config() override { return denoiser_->config(); }
  DType dtype() override { return denoiser_->dtype(); }
  Device device() override { return denoiser_->device(); }
  models::Model* model() override { return denoiser_->model(); }

 private:
  bool replays() const;
  template <class F> auto called(const F& f);
  Ref<Denoiser> denoiser_;
  Ref<DenoiserGraphs> graphs_;
  bool captures_, keeps_context_, is_cast_;
  size_t weight_bytes_ = SIZE_MAX;  // of a model
  int64_t run_;
  size_t texts_ = 2;  // at a time, with guidance in two calls
  models::ContextCache context_;
};

}  // namespace sf::diffusion
