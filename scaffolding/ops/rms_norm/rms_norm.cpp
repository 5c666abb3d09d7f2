#include "scaffolding/ops/rms_norm/rms_norm.h"

#include <limits>

#include "scaffolding/autograd/autocast.h"
#include "scaffolding/autograd/tape.h"
#include "scaffolding/core/op.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/layer_norm/row_norm_op.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/rms_norm/kernel.h"
#include "scaffolding/ops/view/view.h"

namespace sf {
using autograd::save;

constinit KernelTable<RmsNormForward> rms_norm_forward{"rms_norm"};
constinit KernelTable<RmsNormBackward> rms_norm_backward{"rms_norm_backward"};

namespace {

// The op as maths: {y} or {y, s}. Inputs in the order x, residual, weight, scale, shift.
Tensors rms_norm_reference(const Tensors& in, int64_t dims, double eps) {
  Tensor s = in[1] ? in[0] + in[1] : in[0];
  Shape last;
  for (int64_t i = 0; i < dims; ++i) last.push_back(-1 - i);
  Tensor wide = is_reduced(s.dtype()) ? s.to(kFloat32) : s;
  Tensor y = wide * rsqrt(square(wide).mean(last, true) + eps);
  if (in[2]) y = y * in[2];
  y = modulated(y.to(s.dtype()), in[3], in[4]);
  return in[1] ? Tensors{y, s} : Tensors{y};
}

Tensors rms_norm_fused(const char* op, const RowNormInputs& in, const Shape& normalized_shape, double eps) {
  RowNormPlan p = plan_row_norm(op, in, normalized_shape);
  const Tensor& x = in.x;
  Tensor xs = dense(x), residual = dense(in.residual), weight = dense(in.weight), scale = dense(in.scale),
         shift = dense(in.shift);
  Tensor y = empty(x.shape(), x.dtype(), x.device()),
         sum = residual ? empty(x.shape(), x.dtype(), x.device()) : Tensor();
  bool training = autograd::any_requires_grad({x, in.residual, in.weight, in.scale, in.shift});
  Tensor rstd = training ? empty({p.rows}, x.dtype() == kFloat64 ? kFloat64 : kFloat32, x.device()) : Tensor();
  RmsNormForward f{xs, residual, sum, weight, scale, shift, p.cols, p.rows_per_batch, eps, y, rstd};
  auto kernel = rms_norm_forward.find(x.device(), f);
  if (!kernel) return rms_norm_reference({x, in.residual, in.weight, in.scale, in.shift}, normalized_shape.size(), eps);
  if (y.numel() > 0) kernel(f);
  Tensors ys = residual ? Tensors{y, sum} : Tensors{y};
  if (!training) return ys;
  int64_t dims = normalized_shape.size();
  Tensor normalised = residual ? sum.detach() : x;
  bool need[5] = {x.requires_grad(), in.residual.requires_grad(), in.weight.requires_grad(), in.scale.requires_grad(),
                  in.shift.requires_grad()};
  autograd::record_outputs(
      op, ys, {x, in.residual, in.weight, in.scale, in.shift},
      [s = save(normalised), w = save(in.weight), sc = save(in.scale), sh = save(in.shift), rstd = save(rstd), p,
       n = std::to_array(need)](const Tensors& dys) -> Tensors {
        Tensor xs = dense(s.get()), weight = dense(w.get()), scale = dense(sc.get());
        Tensor dy = dys[0] ? contiguous(dys[0]) : zeros(xs.shape(), xs.dtype(), xs.device());
        Tensor dsum = dys.size() > 1 && dys[1] ? contiguous(dys[1]) : Tensor();
        Tensor dx = empty(xs.shape(), xs.dtype(), xs.device());
        Tensor dw = gradient_for(weight, n[2]), dscale = gradient_for(scale, n[3]),
               dshift = gradient_for(sh.get(), n[4]);
        RmsNormBackward k{xs, dy, dsum, weight, scale, p.cols, p.rows_per_batch, rstd.get(), dx, dw, dscale, dshift};
        auto kernel = rms_norm_backward.find(xs.device(), k);
        SF_CHECK_AS(NotSupported, kernel, "rms_norm: no backward kernel on ", xs.device());
        kernel(k);
        return {n[0] ? dx : Tensor(), n[1] ? dx : Tensor(), dw, dscale, dshift};
      },
      [dims, eps](const Tensors& in) { return rms_norm_reference(in, dims, eps); });
  return ys;
}

double epsilon_of(DType t) {  // of the sums, which 16-bit inputs have in float32
  return t == kFloat64 ? std::numeric_limits<double>::epsilon() : double(std::numeric_limits<float>::epsilon());
}

}  // namespace

Tensor rms_norm(const Tensor& input, const Shape& normalized_shape, const Tensor& weight, std::optional<double> eps) {
  SF_AUTOCAST(rms_norm, input, normalized_shape, weight, eps);
  check_defined("rms_norm", "input", input);
  return rms_norm_fused("rms_norm", {input, {}, weight, {}, {}, {}}, normalized_shape,
                        eps.value_or(epsilon_of(input.dtype())))[0];
}

std::tuple<Tensor, Tensor> add_rms_norm(const Tensor& input, const Tensor& residual, const Tensor& weight, double eps) {
  SF_AUTOCAST(add_rms_norm, input, residual, weight, eps);
  check_defined("add_rms_norm", "input", input);
  check_defined("add_rms_norm", "residual", residual);
  SF_CHECK(input.ndim() > 0, "add_rms_norm: input needs a dimension");
  Tensors ys = rms_norm_fused("add_rms_norm", {input, residual, weight, {}, {}, {}}, {input.shape().back()}, eps);
  return {ys[0], ys[1]};
}

Tensor rms_norm_modulate(const Tensor& input, const Tensor& scale, const Tensor& shift, const Tensor& weight,
                         double eps) {
  SF_AUTOCAST(rms_norm_modulate, input, scale, shift, weight, eps);
  check_defined("rms_norm_modulate", "input", input);
  check_defined("rms_norm_modulate", "scale", scale);
  check_defined("rms_norm_modulate", "shift", shift);
  SF_CHECK(input.ndim() > 0, "rms_norm_modulate: input needs a dimension");
  return rms_norm_fused("rms_norm_modulate", {input, {}, weight, {}, scale, shift}, {input.shape().back()}, eps)[0];
}

SF_OP(rms_norm, "input, normalized_shape, weight=None, eps=None")
    .doc("input / sqrt(mean of squares + eps) over the last dimensions, times weight.")
    .like("torch.nn.functional.rms_norm")
    .kernels(rms_norm_forward, rms_norm_backward);
SF_OP(add_rms_norm, "input, residual, weight=None, eps=1e-6")
    .doc("(rms_norm(input + residual), input + residual) over the last dimension, in one pass.")
    .like("(torch.nn.functional.rms_norm(input + residual, input.shape[-1:], weight, eps), input + residual)")
    .kernels(rms_norm_forward, rms_norm_backward);
SF_OP(rms_norm_modulate, "input, scale, shift, weight=None, eps=1e-6")
    .doc("rms_norm(input[B, ..., C]) * (1 + scale[B, C]) + shift[B, C].")
    .like(
        "torch.nn.functional.rms_norm(input, input.shape[-1:], weight, eps) * (1 + scale.reshape(scale.shape[0], *[1] "
        "* (input.dim() - 2), -1)) + "
        "shift.reshape(shift.shape[0], *[1] * (input.dim() - 2), -1)")
    .kernels(rms_norm_forward, rms_norm_backward);

}  // namespace sf
