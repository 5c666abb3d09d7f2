// softmax and log_softmax over the last dimension: the contract with backends.
// All tensors contiguous and of one floating dtype; the last dimension has C elements, the others flatten to R rows.
#pragma once
#include "scaffolding/core/kernel.h"

namespace sf {

// y = softmax(scale * x), or log_softmax. y may be x. A row of -inf gives NaN, as torch.
struct SoftmaxForward {
  TensorView x, y;
  double scale = 1;
  bool log = false;
};
// From y as the forward wrote it:
//   softmax      dx = scale * y * (dy - sum(y * dy))
//   log_softmax  dx = scale * (dy - exp(y) * sum(dy))
// dx may be dy or y.
struct SoftmaxBackward {
  TensorView y, dy, dx;
  double scale = 1;
  bool log = false;
};
extern KernelTable<SoftmaxForward> softmax_forward;
extern KernelTable<SoftmaxBackward> softmax_backward;

}  // namespace sf
