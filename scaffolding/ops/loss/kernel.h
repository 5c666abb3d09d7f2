// Losses: the contract with backends.
#pragma once
#include "scaffolding/ops/pointwise/kernel.h"

namespace sf {

// forward: in = input, target. backward: in = dy, input, target; p1 says which gradient (0: input's, 1: target's).
#define SF_LOSS(name, ...) extern PointwiseTable name##_forward, name##_backward;
#include "scaffolding/ops/loss/loss.def"
#undef SF_LOSS

// Cross entropy of rows of logits with class indices. A is float64 for float64 logits, else float32.
// loss[r] = (1 - s) w[t] (lse - x[t]) + s/C sum_c w[c] (lse - x[c]), 0 where the target t is ignore_index.
struct CrossEntropyForward {
  TensorView x;                 // [R, C], contiguous
  TensorView target;            // int64 [R], contiguous, in range or ignore_index
  TensorView weight;            // A [C], contiguous, or absent: ones
  TensorView loss, row_weight;  // A [R], contiguous: the loss, and w[t] (0 where ignored)
  TensorView lse;  // A [R, 2], contiguous: max(x) and log(sum(exp(x - max))); their sum alone would lose digits
  int64_t ignore_index = -100;
  double label_smoothing = 0;  // s
};
struct CrossEntropyBackward {
  TensorView x, target, weight, lse;  // as above
  TensorView dy;                      // A [R], any stride
  TensorView dx;                      // as x
  int64_t ignore_index = -100;
  double label_smoothing = 0;
};
extern KernelTable<CrossEntropyForward> cross_entropy_forward;
extern KernelTable<CrossEntropyBackward> cross_entropy_backward;

}  // namespace sf
