#include "scaffolding/ops/layer_norm/layer_norm.h"

#include "scaffolding/autograd/autocast.h"
#include "scaffolding/autograd/tape.h"
#include "scaffolding/core/op.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/layer_norm/kernel.h"
#include "scaffolding/ops/layer_norm/row_norm_op.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/view/view.h"

namespace sf {
using autograd::save;

constinit KernelTable<LayerNormForward> layer_norm_forward{"layer_norm"};
constinit KernelTable<LayerNormBackward> layer_norm_backward{"layer_norm_backward"};

namespace {

// The op as maths: {y} or {y, s}. Inputs in the order x, residual, weight, bias, scale, shift.
Tensors layer_norm_reference(const Tensors& in, int64_t dims, double eps) {
  Tensor s = in[1] ? in[0] + in[1] : in[0];
  Shape last;
  for (int64_t i = 0; i < dims; ++i) last.push_back(-1 - i);
  Tensor wide = is_reduced(s.dtype()) ? s.to(kFloat32) : s;
  Tensor centred = wide - wide.mean(last, true);
  Tensor y = centred * rsqrt(square(centred).mean(last, true) + eps);
  if (in[2]) y = y * in[2];
  if (in[3]) y = y + in[3];
  y = modulated(y.to(s.dtype()), in[4], in[5]);
  return in[1] ? Tensors{y, s} : Tensors{y};
}

Tensors layer_norm_fused(const char* op, const RowNormInputs& in, const Shape& normalized_shape, double eps) {
  RowNormPlan p = plan_row_norm(op, in, normalized_shape);
  const Tensor& x = in.x;
  Tensor xs = dense(x), residual = dense(in.residual), weight = dense(in.weight), bias = dense(in.bias),
         scale = dense(in.scale), shift = dense(in.shift);
  Tensor y = empty(x.shape(), x.dtype(), x.device()),
         sum = residual ? empty(x.shape(), x.dtype(), x.device()) : Tensor();
  DType stats = x.dtype() == kFloat64 ? kFloat64 : kFloat32;
  bool training = autograd::any_requires_grad({x, in.residual, in.weight, in.bias, in.scale, in.shift});
  Tensor mean = training ? empty({p.rows}, stats, x.device()) : Tensor(),
         rstd = training ? empty({p.rows}, stats, x.device()) : Tensor();
  LayerNormForward f{xs, residual, sum, weight, bias, scale, shift, p.cols, p.rows_per_batch, eps, y, mean, rstd};
  auto kernel = layer_norm_forward.find(x.device(), f);
  if (!kernel)
    return layer_norm_reference({x, in.residual, in.weight, in.bias, in.scale, in.shift}, normalized_shape.size(), eps);
  if (y.numel() > 0) kernel(f);
  Tensors ys = residual ? Tensors{y, sum} : Tensors{y};
  if (!training) return ys;
  int64_t dims = normalized_shape.size();
  Tensor normalised = residual ? sum.detach() : x;  // what the statistics were taken of
  bool need[6] = {x.requires_grad(),       in.residual.requires_grad(), in.weight.requires_grad(),
                  in.bias.requires_grad(), in.scale.requires_grad(),    in.shift.requires_grad()};
  autograd::record_outputs(
      op, ys, {x, in.residual, in.weight, in.bias, in.scale, in.shift},
      [s = save(normalised), w = save(in.weight), b = save(in.bias), sc = save(in.scale), sh = save(in.shift),
       mean = save(mean), rstd = save(rstd), p, n = std::to_array(need)](const Tensors& dys) -> Tensors {
        Tensor xs = dense(s.get()), weight = dense(w.get()), bias = dense(b.get()), scale = dense(sc.get());
        Tensor dy = dys[0] ? contiguous(dys[0]) : zeros(xs.shape(), xs.dtype(), xs.device());
        Tensor dsum = dys.size() > 1 && dys[1] ? contiguous(dys[1]) : Tensor();
        Tensor dx = empty(xs.shape(), xs.dtype(), xs.device());
        Tensor dw = gradient_for(weight, n[2]), db = gradient_for(bias, n[3]), dscale = gradient_for(scale, n[4]),
               dshift = gradient_for(sh.get(), n[5]);
        LayerNormBackward k{xs,         dy,         dsum, weight, bias, scale,  p.cols, p.rows_per_batch,
                            mean.get(), rstd.get(), dx,   dw,     db,   dscale, dshift};
        auto kernel = layer_norm_backward.find(xs.device(), k);
        SF_CHECK_AS(NotSupported, kernel, "layer_norm: no backward kernel on ", xs.device());
        kernel(k);
        return {n[0] ? dx : Tensor(), n[1] ? dx : Tensor(), dw, db, dscale, dshift};
      },
      [dims, eps](const Tensors& in) { return layer_norm_reference(in, dims, eps); });
  return ys;
}

}  // namespace

Tensor layer_norm(const Tensor& input, const Shape& normalized_shape, const Tensor& weight, const Tensor& bias,
                  double eps) {
  SF_AUTOCAST(layer_norm, input, normalized_shape, weight, bias, eps);
  return layer_norm_fused("layer_norm", {input, {}, weight, bias, {}, {}}, normalized_shape, eps)[0];
}

std::tuple<Tensor, Tensor> add_layer_norm(const Tensor& input, const Tensor& residual, const Tensor& weight,
                                          const Tensor& bias, double eps) {
  SF_AUTOCAST(add_layer_norm, input, residual, weight, bias, eps);
  check_defined("add_layer_norm", "input", input);
  check_defined("add_layer_norm", "residual", residual);
  SF_CHECK(input.ndim() > 0, "add_layer_norm: input needs a dimension");
  Tensors ys = layer_norm_fused("add_layer_norm", {input, residual, weight, bias, {}, {}}, {input.shape().back()}, eps);
  return {ys[0], ys[1]};
}

Tensor layer_norm_modulate(const Tensor& input, const Tensor& scale, const Tensor& shift, const Tensor& weight,
                           const Tensor& bias, double eps) {
  SF_AUTOCAST(layer_norm_modulate, input, scale, shift, weight, bias, eps);
  check_defined("layer_norm_modulate", "input", input);
  check_defined("layer_norm_modulate", "scale", scale);
  check_defined("layer_norm_modulate", "shift", shift);
  SF_CHECK(input.ndim() > 0, "layer_norm_modulate: input needs a dimension");
  return layer_norm_fused("layer_norm_modulate", {input, {}, weight, bias, scale, shift}, {input.shape().back()},
                          eps)[0];
}

SF_OP(layer_norm, "input, normalized_shape, weight=None, bias=None, eps=1e-5")
    .doc("Normalise over the last dimensions, then scale and shift.")
    .like("torch.nn.functional.layer_norm")
    .kernels(layer_norm_forward, layer_norm_backward);
SF_OP(add_layer_norm, "input, residual, weight=None, bias=None, eps=1e-5")
    .doc("(layer_norm(input + residual), input + residual) over the last dimension, in one pass.")
    .like("(torch.nn.functional.layer_norm(input + residual, input.shape[-1:], weight, bias, eps), input + residual)")
    .kernels(layer_norm_forward, layer_norm_backward);
SF_OP(layer_norm_modulate, "input, scale, shift, weight=None, bias=None, eps=1e-6")
    .doc("layer_norm(input[B, ..., C]) * (1 + scale[B, C]) + shift[B, C], the AdaLN of diffusion transformers.")
    .like(
        "torch.nn.functional.layer_norm(input, input.shape[-1:], weight, bias, eps) * (1 + "
        "scale.reshape(scale.shape[0], *[1] * (input.dim() - 2), -1)) + "
        "shift.reshape(shift.shape[0], *[1] * (input.dim() - 2), -1)")
    .kernels(layer_norm_forward, layer_norm_backward);

}  // namespace sf
