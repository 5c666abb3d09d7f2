// What layer_norm and rms_norm have in common above their kernels: checks, flattening to rows,
// the gradient's bookkeeping.
#pragma once
#include "scaffolding/core/tensor.h"

namespace sf {

struct RowNormInputs {
  Tensor x, residual, weight, bias, scale, shift;  // all but x optional
};
struct RowNormPlan {
  int64_t rows = 1, cols = 1, rows_per_batch = 1;
  Shape normalized;
};
// Checks every input against normalized_shape; scale and shift must be [B, C] for x[B, ..., C].
RowNormPlan plan_row_norm(const char* op, const RowNormInputs& in, const Shape& normalized_shape);
// x in row-major memory, off the tape.
Tensor dense(const Tensor& x);
// The gradient buffer of an optional input: empty when not wanted.
Tensor gradient_for(const Tensor& input, bool wanted);
// The AdaLN tail as maths: y * (1 + scale) + shift with [B, C] broadcast over the tokens of y[B, ..., C].
Tensor modulated(const Tensor& y, const Tensor& scale, const Tensor& shift);

}  // namespace sf
