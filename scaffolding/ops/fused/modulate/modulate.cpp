#include "scaffolding/ops/fused/modulate/modulate.h"

#include "scaffolding/autograd/autocast.h"
#include "scaffolding/autograd/tape.h"
#include "scaffolding/core/op.h"
#include "scaffolding/ops/fused/modulate/kernel.h"
#include "scaffolding/ops/layer_norm/row_norm_op.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/view/view.h"

namespace sf {
using autograd::save;

constinit KernelTable<ScaleRows> scale_rows{"scale_rows"};

namespace {

// [B, C] as [B, 1, ..., 1, C]
Tensor over_tokens(const Tensor& t, const Tensor& x) {
  Shape s = Shape::filled(x.ndim(), 1);
  s[0] = t.size(0);
  s.back() = t.size(1);
  return t.reshape(s);
}

void check_tokens(const char* op, const Tensor& x, const char* first, const Tensor& a, const char* second,
                  const Tensor& b, const Shape& second_shape) {
  check_defined(op, "input", x);
  check_floating(op, "input", x);
  SF_CHECK(x.ndim() >= 2, op, ": input must be [B, ..., C], got ", x.shape());
  check_defined(op, first, a);
  check_defined(op, second, b);
  check_shape(op, first, a, {x.shape()[0], x.shape().back()});
  check_shape(op, second, b, second_shape);
  for (const Tensor* t : {&a, &b}) {
    check_same_device(op, x, *t);
    SF_CHECK_AS(TypeError, t->dtype() == x.dtype(), op, ": all tensors must have the input's dtype ", x.dtype(),
                ", got ", t->dtype());
  }
}

// Where autocast mixes dtypes the ops are what they fuse, which widen.
bool are_mixed(const Tensor& a, const Tensor& b, const Tensor& c) {
  return autocast::active() && a && b && c && a.ndim() >= 2 && b.ndim() == 2 &&
         (a.dtype() != b.dtype() || a.dtype() != c.dtype());
}

Tensor run_rows(const char* op, const Tensor& x, const Tensor& factor, const Tensor& base, bool base_per_batch,
                double one) {
  int64_t c = x.shape().back(), rows = c ? x.numel() / c : 0, batch = x.shape()[0];
  Tensor y = empty(x.shape(), x.dtype(), x.device()), xs = dense(x), f = dense(factor), b = dense(base);
  if (y.numel() == 0) return y;
  autograd::NoGrad off;
  ScaleRows k{xs.view({rows, c}), f, base_per_batch ? b : b.view({rows, c}), y.view({rows, c}), base_per_batch, one,
              rows / batch};
  auto kernel = scale_rows.find(x.device(), k);
  SF_CHECK_AS(NotSupported, kernel, op, ": no kernel for ", x.dtype(), " on ", x.device());
  kernel(k);
  return y;
}

Tensor sum_over_tokens(const Tensor& g) {  // [B, ..., C] -> [B, C]
  Shape dims;
  for (int64_t i = 1; i + 1 < g.ndim(); ++i) dims.push_back(i);
  return dims.empty() ? g : g.sum(dims);
}

}  // namespace

Tensor modulate(const Tensor& input, const Tensor& scale, const Tensor& shift) {
  if (are_mixed(input, scale, shift) && shift.ndim() == 2)
    return input * (over_tokens(scale, input) + 1.0) + over_tokens(shift, input);
  if (input && input.ndim() >= 2)
    check_tokens("modulate", input, "scale", scale, "shift", shift, {input.shape()[0], input.shape().back()});
  else check_tokens("modulate", input, "scale", scale, "shift", shift, {});
  Tensor y = run_rows("modulate", input, scale, shift, true, 1);
  return autograd::record("modulate", y, {input, scale, shift},
                          [x = save(input), s = save(scale), nx = input.requires_grad(), ns = scale.requires_grad(),
                           nh = shift.requires_grad()](const Tensor& dy) -> Tensors {
                            return {nx ? dy * (over_tokens(s.get(), dy) + 1.0) : Tensor(),
                                    ns ? sum_over_tokens(dy * x.get()) : Tensor(), nh ? sum_over_tokens(dy) : Tensor()};
                          });
}

Tensor gated_residual(const Tensor& residual, const Tensor& gate, const Tensor& input) {
  if (are_mixed(input, gate, residual)) return residual + over_tokens(gate, input) * input;
  check_defined("gated_residual", "input", input);
  check_tokens("gated_residual", input, "gate", gate, "residual", residual, input.shape());
  Tensor y = run_rows("gated_residual", input, gate, residual, false, 0);
  return autograd::record(
      "gated_residual", y, {residual, gate, input},
      [x = save(input), g = save(gate), ng = gate.requires_grad(),
       nx = input.requires_grad()](const Tensor& dy) -> Tensors {
        return {dy, ng ? sum_over_tokens(dy * x.get()) : Tensor(), nx ? dy * over_tokens(g.get(), dy) : Tensor()};
      });
}

SF_OP(modulate, "input, scale, shift")
    .doc("input[B, ..., C] * (1 + scale[B, C]) + shift[B, C] in one pass, AdaLN's affine part.")
    .like(
        "input * (1 + scale.reshape(scale.shape[0], *[1] * (input.dim() - 2), -1)) + shift.reshape(shift.shape[0], "
        "*[1] * (input.dim() - 2), -1)")
    .kernels(scale_rows);
SF_OP(gated_residual, "residual, gate, input")
    .doc("residual + gate[B, C] * input[B, ..., C] in one pass.")
    .like("residual + gate.reshape(gate.shape[0], *[1] * (input.dim() - 2), -1) * input")
    .kernels(scale_rows);

}  // namespace sf
