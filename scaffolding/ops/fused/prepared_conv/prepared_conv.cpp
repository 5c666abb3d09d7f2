#include "scaffolding/ops/fused/prepared_conv/prepared_conv.h"

#include "scaffolding/autograd/autocast.h"
#include "scaffolding/autograd/tape.h"
#include "scaffolding/backend/meta_memory.h"
#include "scaffolding/core/op.h"
#include "scaffolding/ops/conv/conv_residual.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/fused/prepared_conv/in_place.h"
#include "scaffolding/ops/group_norm/group_norm.h"
#include "scaffolding/ops/group_norm/kernel.h"
#include "scaffolding/ops/interpolate/interpolate.h"
#include "scaffolding/ops/pointwise/pointwise.h"

namespace sf {

namespace {

// The sizes of the result; `repeat` times the pixels of input. ValueError for what does not fit.
Shape checked_sizes(const char* op, const Tensor& input, const Tensor& weight, const Tensor& bias, int64_t repeat,
                    int64_t padding) {
  check_conv_operands(op, input, weight, 2);
  check_same_device(op, input, bias);
  SF_CHECK(input.ndim() == 4, op, ": input must be [N, C, H, W], got ", input.shape());
  SF_CHECK(input.size(1) == weight.size(1), op, ": weight ", weight.shape(), " wants ", weight.size(1),
           " input channels, got input ", input.shape());
  check_shape(op, "bias", bias, {weight.size(0)});
  SF_CHECK(padding >= 0 && padding < int64_t(1) << 31, op, ": padding must be at least 0, got ", padding);
  Shape out{input.size(0), weight.size(0)};
  for (int64_t i = 2; i < 4; ++i) {
    out.push_back(input.size(i) * repeat + 2 * padding - weight.size(i) + 1);
    SF_CHECK(out[i] > 0, op, ": kernel ", weight.shape(), " does not fit into input ", input.shape(), " with padding ",
             padding);
  }
  return out;
}

bool is_float_channels_last(const Tensor& t) {
  return !t || (t.dtype() == kFloat32 && t.is_contiguous(MemoryFormat::ChannelsLast));
}
bool is_float_list(const Tensor& t) { return !t || t.dtype() == kFloat32; }
// [N, O, 1, 1] where the result has more pixels: one number for each picture and channel,
// which kernels add to all of them.
bool is_shift(const Tensor& residual, const Shape& sizes) {
  return residual && residual.shape() != sizes && residual.shape() == Shape{sizes[0], sizes[1], 1, 1};
}

// The call with its operands in place, or false where only a composition will do. y is made unless it is there.
bool prepare(PreparedConvForward& p, const Tensor& input, const Tensor& weight, const Tensor& bias,
             const Tensor& residual, const Shape& sizes, int64_t padding, Tensor& y) {
  if (input.numel() == 0 || !is_float_channels_last(input) || !is_float_channels_last(residual) || !is_float_list(bias))
    return false;
  if (!y) y = empty_strided(sizes, channels_last_strides(sizes), input.dtype(), input.device());
  p.conv.x = input, p.conv.weight = weight, p.conv.bias = bias, p.conv.residual = residual, p.conv.y = y;
  p.conv.shape.padding[0] = p.conv.shape.padding[1] = padding;
  return true;
}

bool has_kernel(const PreparedConvForward& p, Device device) {
  return bool(prepared_conv_forward.find(MetaMemory::kernels_of(device), p));
}

// conv2d(silu(group_norm(input))) + residual in one, or false. Lists are contiguous.
bool run_normed(Tensor& y, const Tensor& input, int64_t num_groups, const Tensor& norm_weight, const Tensor& norm_bias,
                const Tensor& weight, const Tensor& bias, const Tensor& residual, double eps, const Shape& sizes,
                int64_t padding) {
  PreparedConvForward p{.groups = num_groups};
  if (autograd::any_requires_grad({input, norm_weight, norm_bias, weight, bias, residual}) ||
      !is_float_list(norm_weight) || !is_float_list(norm_bias) ||
      !prepare(p, input, weight, bias, residual, sizes, padding, y))
    return false;
  Tensor mean = empty({input.size(0), num_groups}, kFloat32, input.device()), rstd = empty_like(mean);
  p.mean = mean, p.rstd = rstd, p.norm_weight = norm_weight, p.norm_bias = norm_bias;
  GroupNormForward statistics{input, norm_weight, norm_bias, num_groups, eps, true, {}, mean, rstd};
  auto first = group_norm_forward.find(input.device(), statistics);
  auto then = prepared_conv_forward.find(input.device(), p);
  if (!first || !then || !has_kernel(p, input.device())) return false;
  first(statistics);
  then(p);
  return true;
}

}  // namespace

Tensor group_norm_silu_conv2d(const Tensor& input, int64_t num_groups, const Tensor& norm_weight,
                              const Tensor& norm_bias, const Tensor& weight, const Tensor& bias, const Tensor& residual,
                              double eps, int64_t padding) {
  const char* op = "group_norm_silu_conv2d";
  auto composed = [&] {
    Tensor y = conv2d(group_norm_silu(input, num_groups, norm_weight, norm_bias, eps), weight, bias, {1}, padding);
    return residual ? y + residual : y;
  };
  if (autocast::active()) return composed();  // its ops convert their operands
  Shape sizes = checked_sizes(op, input, weight, bias, 1, padding);
  SF_CHECK(num_groups > 0 && input.size(1) % num_groups == 0, op,
           ": num_groups must divide channels, got num_groups=", num_groups, " for input ", input.shape());
  for (auto [name, t] : {std::pair{"norm_weight", &norm_weight}, {"norm_bias", &norm_bias}}) {
    check_defined(op, name, *t);
    check_shape(op, name, *t, {input.size(1)});
    check_floating(op, name, *t);
    check_same_device(op, input, *t);
  }
  const bool shifts = is_shift(residual, sizes);
  if (!shifts) check_shape(op, "residual", residual, sizes);
  check_same_device(op, input, residual);
  Tensor y;
  if (run_normed(y, input, num_groups, contiguous(norm_weight), contiguous(norm_bias), weight,
                 bias ? contiguous(bias) : bias, shifts && input.device().is_cpu() ? contiguous(residual) : residual,
                 eps, sizes, padding))
    return y;
  if (residual && (input.device().is_cuda() || is_reduced(input.dtype())) && residual.dtype() == input.dtype() &&
      (!bias || bias.dtype() == input.dtype()) &&
      !autograd::any_requires_grad({input, norm_weight, norm_bias, weight, bias, residual})) {
    auto normed = [&] { return group_norm_silu(input, num_groups, norm_weight, norm_bias, eps); };
    // The residual goes into the convolution's own pass; one number for each channel becomes part of the bias. Not of
    // float32: its kernels do either, and are the same to the bit for one picture and for many.
    if (!shifts) return conv_plus_residual(normed(), weight, bias, residual, {.padding = {padding, padding, 0}});
    if (input.size(0) == 1 && input.device().is_cpu()) {
      const Tensor shift = to_dtype(residual.flatten(), kFloat32);
      return conv2d(normed(), weight, bias ? to_dtype(bias, kFloat32) + shift : shift, {1}, padding);
    }
  }
  return composed();
}

bool group_norm_silu_conv2d_into(Tensor& residual, const Tensor& input, int64_t num_groups, const Tensor& norm_weight,
                                 const Tensor& norm_bias, const Tensor& weight, const Tensor& bias, double eps) {
  const Shape sizes{input.size(0), weight.size(0), input.size(2), input.size(3)};
  if (autocast::active() || residual.dtype() != kFloat32 || residual.shape() != sizes || weight.size(2) != 3 ||
      weight.size(3) != 3)
    return false;
  return run_normed(residual, input, num_groups, contiguous(norm_weight), contiguous(norm_bias), weight,
                    bias ? contiguous(bias) : bias, residual, eps, sizes, 1);
}

namespace {
bool takes_narrow(const Tensor& input, const Tensor& weight) {
  return !autocast::active() && input.ndim() == 4 && input.dtype() == kFloat32 && weight.size(1) == input.size(1) &&
         weight.size(2) == 3 && weight.size(3) == 3;
}
}  // namespace

Tensor group_norm_silu_narrow_conv2d(const Tensor& input, int64_t num_groups, const Tensor& norm_weight,
                                     const Tensor& norm_bias, const Tensor& weight, const Tensor& bias,
                                     const Tensor& residual, double eps) {
  if (!takes_narrow(input, weight)) return {};
  const Shape sizes{input.size(0), weight.size(0), input.size(2), input.size(3)};
  const bool shifts = is_shift(residual, sizes);
  if (residual && residual.shape() != sizes && !shifts) return {};
  Tensor y;
  const bool done = run_normed(y, input, num_groups, contiguous(norm_weight), contiguous(norm_bias), weight,
                               bias ? contiguous(bias) : bias, shifts ? contiguous(residual) : residual, eps, sizes, 1);
  return done ? y : Tensor();
}

Tensor upsample_narrow_conv2d(const Tensor& input, const Tensor& weight, const Tensor& bias) {
  if (!takes_narrow(input, weight) || autograd::any_requires_grad({input, weight, bias})) return {};
  const Shape sizes{input.size(0), weight.size(0), 2 * input.size(2), 2 * input.size(3)};
  PreparedConvForward p{.repeat = 2};
  Tensor y;
  const Tensor b = bias ? contiguous(bias) : bias;
  if (!prepare(p, input, weight, b, {}, sizes, 1, y) || !has_kernel(p, input.device())) return {};
  prepared_conv_forward.find(input.device(), p)(p);
  return y;
}

Tensor upsample_conv2d(const Tensor& input, const Tensor& weight, const Tensor& bias, int64_t padding) {
  auto composed = [&] { return conv2d(interpolate(input, {}, Floats{2, 2}), weight, bias, {1}, padding); };
  if (autocast::active()) return composed();
  Shape sizes = checked_sizes("upsample_conv2d", input, weight, bias, 2, padding);
  PreparedConvForward p{.repeat = 2};
  Tensor y, b = bias ? contiguous(bias) : bias;
  if (!autograd::any_requires_grad({input, weight, bias}) && prepare(p, input, weight, b, {}, sizes, padding, y))
    if (auto kernel = prepared_conv_forward.find(input.device(), p); kernel && has_kernel(p, input.device())) {
      kernel(p);
      return y;
    }
  return composed();
}

SF_OP(group_norm_silu_conv2d,
      "input, num_groups, norm_weight, norm_bias, weight, bias=None, residual=None, eps=1e-5, padding=1")
    .doc(
        "conv2d(silu(group_norm(input))) + residual of input[N, C, H, W], which is normalised on its way into the "
        "convolution. residual has the result's shape "
        "or is [N, O, 1, 1].")
    .like(
        "(lambda y: y if residual is None else y + residual)(F.conv2d(F.silu(F.group_norm(input, num_groups, "
        "norm_weight, norm_bias, eps)), weight, bias, "
        "padding=padding))")
    .kernels(group_norm_forward, prepared_conv_forward, conv_forward);
SF_OP(upsample_conv2d, "input, weight, bias=None, padding=1")
    .doc("conv2d of input[N, C, H, W] with each pixel twice in either direction, as it is read.")
    .like("F.conv2d(F.interpolate(input, scale_factor=2), weight, bias, padding=padding)")
    .kernels(prepared_conv_forward, conv_forward);

}  // namespace sf
