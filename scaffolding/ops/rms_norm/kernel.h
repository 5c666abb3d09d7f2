// rms_norm: the contract with backends. As layer_norm's, without mean and bias:
// x is R rows of C = cols contiguous elements; x, y, residual, sum, dy, dx, dsum share x's floating dtype and are
// contiguous; weight, scale, shift and their gradients may be of any floating dtype;
// rstd is float32 (float64 for float64 x).
#pragma once
#include "scaffolding/core/kernel.h"

namespace sf {

// s = x + residual (rounded to x's dtype, written to sum), or x without residual
// rstd = 1 / sqrt(mean(s^2) + eps);  y = (s * rstd * weight) * (1 + scale) + shift
struct RmsNormForward {
  TensorView x;
  TensorView residual, sum;  // both or neither; sum may be x or residual
  TensorView weight;         // [C], optional
  TensorView scale, shift;   // [B, C], each optional, last stride 1; row r uses batch r / rows_per_batch
  int64_t cols = 0, rows_per_batch = 1;
  double eps = 1e-6;
  TensorView y;     // may be x
  TensorView rstd;  // [R], optional
};
// x is what was normalised (sum, where a residual was added); dx includes dsum and may be dy. Every gradient but dx is
// optional. Results do not vary with the number of threads.
struct RmsNormBackward {
  TensorView x, dy, dsum;
  TensorView weight, scale;
  int64_t cols = 0, rows_per_batch = 1;
  TensorView rstd;
  TensorView dx, dweight, dscale, dshift;
};
extern KernelTable<RmsNormForward> rms_norm_forward;
extern KernelTable<RmsNormBackward> rms_norm_backward;

}  // namespace sf
