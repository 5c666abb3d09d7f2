// layer_norm: the contract with backends. x is R rows of C = cols contiguous elements (any shape that flattens so);
// x, y, residual, sum, dy, dx, dsum share x's floating dtype and are contiguous. weight, bias, scale, shift and their
// gradients may be of any floating dtype. Statistics are float32 (float64 for float64 x).
#pragma once
#include "scaffolding/core/kernel.h"

namespace sf {

// s = x + residual (rounded to x's dtype, written to sum), or x without residual
// y = ((s - mean) * rstd * weight + bias) * (1 + scale) + shift
struct LayerNormForward {
  TensorView x;
  TensorView residual, sum;  // both or neither; sum may be x or residual
  TensorView weight, bias;   // [C], each optional
  TensorView scale, shift;   // [B, C], each optional, last stride 1; row r uses batch r / rows_per_batch
  int64_t cols = 0, rows_per_batch = 1;
  double eps = 1e-5;
  TensorView y;           // may be x
  TensorView mean, rstd;  // [R], each optional: what backward needs
};
// x is what was normalised (sum, where a residual was added). dx includes dsum, the gradient that reached `sum` by
// other ways: it is then the gradient of x and of residual. dx may be dy. Every gradient but dx is optional.
// Column sums are added in an order that depends on the sizes alone: results do not vary with the number of threads.
struct LayerNormBackward {
  TensorView x, dy, dsum;
  TensorView weight, bias;  // bias is read for dscale only
  TensorView scale;
  int64_t cols = 0, rows_per_batch = 1;
  TensorView mean, rstd;
  TensorView dx, dweight, dbias, dscale, dshift;
};
extern KernelTable<LayerNormForward> layer_norm_forward;
extern KernelTable<LayerNormBackward> layer_norm_backward;

}  // namespace sf
