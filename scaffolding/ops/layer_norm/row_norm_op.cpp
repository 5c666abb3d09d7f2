#include "scaffolding/ops/layer_norm/row_norm_op.h"

#include "scaffolding/autograd/tape.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/view/view.h"

namespace sf {

RowNormPlan plan_row_norm(const char* op, const RowNormInputs& in, const Shape& normalized_shape) {
  const Tensor& x = in.x;
  check_defined(op, "input", x);
  check_floating(op, "input", x);
  int64_t k = normalized_shape.size();
  SF_CHECK(k > 0, op, ": normalized_shape must not be empty");
  SF_CHECK(x.ndim() >= k && Shape(x.shape().end() - k, k) == normalized_shape, op, ": normalized_shape ",
           normalized_shape, " must be the last sizes of input ", x.shape());
  RowNormPlan p;
  p.normalized = normalized_shape;
  p.cols = numel(normalized_shape);
  for (int64_t i = 0; i < x.ndim() - k; ++i) p.rows *= x.shape()[i];
  check_shape(op, "weight", in.weight, normalized_shape);
  check_shape(op, "bias", in.bias, normalized_shape);
  check_shape(op, "residual", in.residual, x.shape());
  if (in.residual)
    SF_CHECK_AS(TypeError, in.residual.dtype() == x.dtype(), op, ": residual must have the input's dtype ", x.dtype(),
                ", got ", in.residual.dtype());
  for (const Tensor* t : {&in.weight, &in.bias, &in.residual, &in.scale, &in.shift})
    if (*t) {
      check_same_device(op, x, *t);
      check_floating(op, "every tensor", *t);
    }
  if (in.scale || in.shift) {
    SF_CHECK(x.ndim() >= 2 && k == 1, op, ": input must be [B, ..., C], got ", x.shape());
    check_shape(op, "scale", in.scale, {x.shape()[0], p.cols});
    check_shape(op, "shift", in.shift, {x.shape()[0], p.cols});
    p.rows_per_batch = std::max<int64_t>(1, x.shape()[0] ? p.rows / x.shape()[0] : 1);
  }
  return p;
}

Tensor dense(const Tensor& x) {
  if (!x) return x;
  autograd::NoGrad off;
  return contiguous(x);
}

Tensor gradient_for(const Tensor& input, bool wanted) {
  return wanted && input ? empty(input.shape(), input.dtype(), input.device()) : Tensor();
}

Tensor modulated(const Tensor& y, const Tensor& scale, const Tensor& shift) {
  if (!scale && !shift) return y;
  Shape broadcast = Shape::filled(y.ndim(), 1);
  broadcast[0] = y.shape()[0];
  broadcast.back() = y.shape().back();
  Tensor out = scale ? y * (scale.reshape(broadcast) + 1.0) : y;
  return (shift ? out + shift.reshape(broadcast) : out).to(y.dtype());
}

}  // namespace sf
