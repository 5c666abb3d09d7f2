// Memory for time: checkpoint() runs fn and keeps only its inputs; backward runs it again when it first needs something
// that fn's ops saved. checkpoint_offload() keeps everything, but elsewhere: in host memory, or in a smaller dtype.
// Both work through SavedTensorHooks, so that parameters inside fn, nesting, several outputs, grad() and higher
// derivatives work as without. fn must do the same each time; it is kept until the graph is gone.
#pragma once
#include "scaffolding/autograd/node.h"

namespace sf::autograd {

using CheckpointFunction = std::function<Tensors(const Tensors& inputs)>;

struct CheckpointOptions {
  bool preserve_rng_state = true;  // the second run draws the first one's numbers from the default generators
};

// fn(inputs), to be recomputed in backward. RuntimeError in backward when the second run saved other tensors.
Tensors checkpoint(CheckpointFunction fn, const Tensors& inputs, CheckpointOptions options = {});

struct OffloadOptions {
  Device device = {};  // where saved tensors wait
  // floating tensors wait in this dtype (bfloat16, float8_e4m3fn): lossy. Wider ones only
  std::optional<DType> dtype = {};
  int64_t min_bytes = 1 << 12;  // smaller tensors stay where they are
};

// While alive, tensors saved for backward on this thread are moved.
class OffloadSaved : public SavedTensorHooks {
 public:
  explicit OffloadSaved(OffloadOptions options = {});
};

Tensors checkpoint_offload(const CheckpointFunction& fn, const Tensors& inputs, OffloadOptions options = {});

}  // namespace sf::autograd
