#include "scaffolding/ops/group_norm/group_norm.h"

#include "scaffolding/autograd/autocast.h"
#include "scaffolding/autograd/tape.h"
#include "scaffolding/core/op.h"
#include "scaffolding/ops/cat/cat.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/group_norm/kernel.h"
#include "scaffolding/ops/layer_norm/row_norm_op.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/view/view.h"

namespace sf {
using autograd::save;

constinit KernelTable<GroupNormForward> group_norm_forward{"group_norm"};
constinit KernelTable<GroupNormBackward> group_norm_backward{"group_norm_backward"};

namespace {

Tensor group_norm_reference(const Tensor& input, int64_t groups, const Tensor& weight, const Tensor& bias, double eps,
                            bool with_silu) {
  Tensor x = is_reduced(input.dtype()) ? input.to(kFloat32) : input;
  Tensor g = x.reshape({x.size(0), groups, x.numel() / std::max<int64_t>(x.size(0) * groups, 1)});
  Tensor centred = g - g.mean({2}, true);
  Tensor y = (centred * rsqrt(square(centred).mean({2}, true) + eps)).reshape(input.shape());
  Shape channel = Shape::filled(input.ndim() - 1, 1);
  channel[0] = input.size(1);
  if (weight) y = y * weight.reshape(channel);
  if (bias) y = y + bias.reshape(channel);
  return (with_silu ? silu(y) : y).to(input.dtype());
}

// The layouts the kernels take; others are copied to row-major memory.
Tensor in_kernel_layout(const Tensor& x) {
  if (x.is_contiguous() || x.is_contiguous(MemoryFormat::ChannelsLast)) return x;
  return dense(x);
}

Tensor group_norm_fused(const char* op, const Tensor& x, int64_t num_groups, const Tensor& weight, const Tensor& bias,
                        double eps, bool with_silu) {
  check_defined(op, "input", x);
  check_floating(op, "input", x);
  SF_CHECK(x.ndim() >= 2, op, ": input must be [N, C, ...], got ", x.shape());
  SF_CHECK(num_groups > 0 && x.size(1) % num_groups == 0, op,
           ": num_groups must divide channels, got num_groups=", num_groups, " for input ", x.shape());
  for (auto [name, t] : {std::pair{"weight", &weight}, {"bias", &bias}})
    if (*t) {
      check_shape(op, name, *t, {x.size(1)});
      check_floating(op, name, *t);
      check_same_device(op, x, *t);
    }
  Tensor xs = in_kernel_layout(x), w = dense(weight), b = dense(bias), y = empty_like(xs);
  DType stats = x.dtype() == kFloat64 ? kFloat64 : kFloat32;
  Tensor mean = empty({x.size(0), num_groups}, stats, x.device()),
         rstd = empty({x.size(0), num_groups}, stats, x.device());
  GroupNormForward f{xs, w, b, num_groups, eps, with_silu, y, mean, rstd};
  auto kernel = group_norm_forward.find(x.device(), f);
  if (!kernel) return group_norm_reference(x, num_groups, weight, bias, eps, with_silu);
  if (y.numel() > 0) kernel(f);
  return autograd::record(
      op, y, {x, weight, bias},
      [x = save(x), w = save(weight), b = save(bias), mean = save(mean), rstd = save(rstd), num_groups, with_silu,
       nw = weight.requires_grad(), nb = bias.requires_grad()](const Tensor& dy) -> Tensors {
        Tensor xs = in_kernel_layout(x.get()), weight = dense(w.get()), bias = dense(b.get());
        Tensor g = empty_strided(xs.shape(), xs.strides(), dy.dtype(), dy.device());  // dy in x's layout
        if (dy.strides() == xs.strides()) g = dy;
        else copy_bytes(g, dy);
        Tensor dx = empty_strided(xs.shape(), xs.strides(), xs.dtype(), xs.device()), dw = gradient_for(weight, nw),
               db = gradient_for(bias, nb);
        if (dx.numel() == 0) return {dx, dw ? dw.zero_() : dw, db ? db.zero_() : db};
        GroupNormBackward k{xs, g, weight, bias, num_groups, with_silu, mean.get(), rstd.get(), dx, dw, db};
        auto kernel = group_norm_backward.find(xs.device(), k);
        SF_CHECK_AS(NotSupported, kernel, "group_norm: no backward kernel on ", xs.device());
        kernel(k);
        return {dx, dw, db};
      },
      [num_groups, eps, with_silu](const Tensors& in) -> Tensors {
        return {group_norm_reference(in[0], num_groups, in[1], in[2], eps, with_silu)};
      });
}

// y of channels-last tensors side by side, off the tape; empty where there is no kernel, and for what does not fit,
// which the composition refuses.
Tensor of_two(const Tensor& input, const Tensor& other, int64_t num_groups, const Tensor& weight, const Tensor& bias,
              double eps) {
  if (!input || !other || !input.device().is_cuda() || autocast::active() ||
      autograd::any_requires_grad({input, other, weight, bias}))
    return {};
  if (input.ndim() != 4 || other.ndim() != 4 || !is_floating(input.dtype()) || input.dtype() != other.dtype() ||
      input.device() != other.device())
    return {};
  Shape sizes = input.shape(), rest = other.shape();
  sizes[1] += rest[1];
  rest[1] = sizes[1];
  if (sizes != rest || numel(sizes) == 0 || num_groups <= 0 || sizes[1] % num_groups != 0) return {};
  for (auto& t : {weight, bias})
    if (t && (t.shape() != Shape{sizes[1]} || !is_floating(t.dtype()) || t.device() != input.device())) return {};
  Tensor w = dense(weight), b = dense(bias),
         y = empty_strided(sizes, channels_last_strides(sizes), input.dtype(), input.device());
  Tensor mean = empty({sizes[0], num_groups}, input.dtype() == kFloat64 ? kFloat64 : kFloat32, input.device()),
         rstd = empty_like(mean);
  GroupNormForward f{input, w, b, num_groups, eps, true, y, mean, rstd, other};
  auto kernel = group_norm_forward.find(input.device(), f);
  if (!kernel) return {};
  kernel(f);
  return y;
}

}  // namespace

Tensor group_norm(const Tensor& input, int64_t num_groups, const Tensor& weight, const Tensor& bias, double eps) {
  SF_AUTOCAST(group_norm, input, num_groups, weight, bias, eps);
  return group_norm_fused("group_norm", input, num_groups, weight, bias, eps, false);
}
Tensor group_norm_silu(const Tensor& input, int64_t num_groups, const Tensor& weight, const Tensor& bias, double eps) {
  SF_AUTOCAST(group_norm_silu, input, num_groups, weight, bias, eps);
  return group_norm_fused("group_norm_silu", input, num_groups, weight, bias, eps, true);
}

Tensor cat_group_norm_silu(const Tensor& input, const Tensor& other, int64_t num_groups, const Tensor& weight,
                           const Tensor& bias, double eps) {
  if (Tensor y = of_two(input, other, num_groups, weight, bias, eps)) return y;
  return group_norm_silu(cat({input, other}, 1), num_groups, weight, bias, eps);
}

SF_OP(group_norm, "input, num_groups, weight=None, bias=None, eps=1e-5")
    .doc("Normalise each of num_groups channel groups of input[N, C, ...], then scale and shift per channel.")
    .like("torch.nn.functional.group_norm")
    .kernels(group_norm_forward, group_norm_backward);
SF_OP(group_norm_silu, "input, num_groups, weight=None, bias=None, eps=1e-5")
    .doc("silu(group_norm(input)) with one read and one write.")
    .like("F.silu(F.group_norm(input, num_groups, weight, bias, eps))")
    .kernels(group_norm_forward, group_norm_backward);
SF_OP(cat_group_norm_silu, "input, other, num_groups, weight=None, bias=None, eps=1e-5")
    .doc("silu(group_norm(cat([input, other], 1))); channels-last tensors on CUDA are read as they lie.")
    .like("F.silu(F.group_norm(torch.cat([input, other], 1), num_groups, weight, bias, eps))")
    .kernels(group_norm_forward);

}  // namespace sf
