// GraphedStep: a training step (forward, loss, backward, clipping, optimizer) as one CUDA graph for each shape of its
// inputs.
//   optim::GraphedStep step([&](const Tensors& in) -> Tensors {
//     optimizer.zero_grad();
//     Tensor loss = mse_loss(net(in[0]), in[1]);
//     loss.backward();
//     optimizer.step();
//     return {loss.detach()};
//   });
//   for (auto& batch : batches) losses.push_back(step({batch.x, batch.y})[0]);  // the numbers of calling it each time
// The first call with a shape runs the step op by op, which makes gradients and the optimizer's state; the second
// captures, and from then on a call is a replay. The optimizer must be capturable (see AdamW). What the step reads
// besides its inputs must stay where it is: after weights were replaced, reset(). Tensors that are given other memory
// (module.to, tensor.data) between two calls are noticed, and all is captured anew.
// Used by one thread at a time.
#pragma once
#include <functional>
#include <list>

#include "scaffolding/backend/cuda_graph.h"
#include "scaffolding/core/tensor.h"

namespace sf::optim {

class GraphedStep {
 public:
  using Step = std::function<Tensors(const Tensors& inputs)>;
  struct Statistics {
    int64_t eager = 0, captures = 0, replays = 0;  // since it was made
    size_t kept = 0;
  };
  static constexpr size_t kMost = 8;  // shapes that are kept; the one that was longest without use goes first

  explicit GraphedStep(Step step);
  ~GraphedStep();
  GraphedStep(const GraphedStep&) = delete;
  GraphedStep& operator=(const GraphedStep&) = delete;

  // The step's results, as tensors of the caller's. ValueError for inputs that are not on one CUDA device.
  Tensors operator()(const Tensors& inputs);
  void reset();  // forgets all graphs and gives their memory back
  Statistics statistics() const { return {eager_, captures_, replays_, graphs_.size()}; }

 private:
  struct Graph;
  Tensors run(const Tensors& inputs);
  Step step_;
  std::list<std::unique_ptr<Graph>> graphs_;  // the last used first
  cuda::GraphPool pool_ = 0;
  int64_t eager_ = 0, captures_ = 0, replays_ = 0;
  uint64_t moves_ = 0;  // autograd::data_moves() when the last call ended
};

}  // namespace sf::optim
