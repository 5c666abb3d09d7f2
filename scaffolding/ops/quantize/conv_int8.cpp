// On CUDA rows of what a kernel sees of a sample are laid out and multiplied as matrices of int8 (int_mm); the CPU's
// kernels gather them while they pack.
#include "scaffolding/ops/quantize/conv_int8.h"

#include <cmath>

#include "scaffolding/autograd/autocast.h"
#include "scaffolding/autograd/tape.h"
#include "scaffolding/backend/meta_memory.h"
#include "scaffolding/core/op.h"
#include "scaffolding/ops/conv/conv.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/group_norm/kernel.h"
#include "scaffolding/ops/int_mm/int_mm.h"
#include "scaffolding/ops/int_mm/kernel.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/quantize/int8_kernel.h"
#include "scaffolding/ops/reduce/reduce.h"
#include "scaffolding/ops/view/view.h"

namespace sf {

constinit KernelTable<Int8Conv> int8_conv{"int8_conv"};
constinit KernelTable<Int8NormQuantize> int8_norm_quantize{"int8_norm_quantize"};

namespace {

// Bytes of laid out rows and their sums on CUDA: as many as fill it.
constexpr int64_t kDeviceBytes = 64 << 20;

struct Int8Conv2d {
  int64_t channels, height, width;  // of a sample
  int64_t kh, kw, out_h, out_w, out_channels;
  ConvShape shape;
  int64_t row() const { return kh * kw * channels; }
  int64_t pixels() const { return out_h * out_w; }
  int64_t padded_h() const { return height + 2 * shape.padding[0]; }
  int64_t padded_w() const { return width + 2 * shape.padding[1]; }
  // Rows of the product are the sample's pixels themselves.
  bool pointwise() const {
    return kh == 1 && kw == 1 && shape.stride[0] == 1 && shape.stride[1] == 1 && shape.padding[0] == 0 &&
           shape.padding[1] == 0;
  }
};

// x[1, C, H, W] to out[pixels, O] of any floating dtype, on CUDA. weight[O, KH KW C].
void convolve_sample(const char* op, const Tensor& x, const Tensor& weight, const Tensor& column, const Tensor& bias,
                     const Int8Conv2d& c, const Tensor& out) {
  const bool wide = x.dtype() == kFloat64;
  const Tensor numbers = contiguous(permute(wide ? to_dtype(x, kFloat32) : x, {0, 2, 3, 1})).view({1, x.numel()});
  const Tensor most = to_dtype(amax(abs(numbers)), kFloat32).view({1}), row = most * double(float(kInt8Unit));
  const Tensor codes = empty({c.height, c.width, c.channels}, kInt8, x.device()), flat = codes.view({1, x.numel()});
  call_int8(op, int8_quantize, Int8Quantize{numbers, flat, most, false}, x.device());
  const int64_t k = c.row(), n = c.out_channels, pixels = c.pixels(),
                lot = std::min(pixels, std::max<int64_t>(64, kDeviceBytes / (k + 4 * n)));
  const Tensor all = c.pointwise() ? codes.view({pixels, k}) : empty({lot, k}, kInt8, x.device());
  const Tensor y = wide ? empty({pixels, n}, kFloat32, x.device()) : out;
  for (int64_t p = 0; p < pixels; p += lot) {
    const int64_t count = std::min(lot, pixels - p);
    const Tensor rows = all.narrow(0, c.pointwise() ? p : 0, count);
    if (!c.pointwise()) {
      Int8Unfold u{codes, rows, {c.kh, c.kw}, {}, {}, {}, c.out_w, p};
      for (int i = 0; i < 2; ++i)
        u.stride[i] = c.shape.stride[i], u.padding[i] = c.shape.padding[i], u.dilation[i] = c.shape.dilation[i];
      call_int8(op, int8_unfold, u, x.device());
    }
    const Tensor sums = int_mm(rows, weight.t()), to = y.narrow(0, p, count);
    Int8Scale s{sums, row, column, {}, to};
    if (bias) s.bias = bias;
    call_int8(op, int8_scale, s, x.device());
  }
  if (wide) out.narrow(0, 0, pixels).copy_(y);
}

// codes[N, H, W, C], and the largest magnitudes [N] of what they are of, to y[N pixels, O] on the CPU, of float32,
// bfloat16 or float16. weight[O, KH, KW, C]; bias[O] or [N, O] and residual[N pixels, O] may be absent.
void convolve_codes(const char* op, const Tensor& codes, const Tensor& most, const Tensor& weight, const Tensor& column,
                    const Tensor& bias, const Tensor& residual, const Int8Conv2d& c, const Tensor& y) {
  const Tensor rows = most * double(float(kInt8Unit));
  Int8Conv f{codes, weight, rows, column, {}, {}, y, {}, {}, {}, {c.out_h, c.out_w}};
  for (int i = 0; i < 2; ++i)
    f.stride[i] = c.shape.stride[i], f.padding[i] = c.shape.padding[i], f.dilation[i] = c.shape.dilation[i];
  if (bias) f.bias = bias;
  if (residual) f.residual = residual;
  call_int8(op, int8_conv, f, y.device());
}

// x[N, C, H, W] to out[N pixels, O], on the CPU and without memory.
void convolve(const char* op, const Tensor& x, const Tensor& weight, const Tensor& column, const Tensor& bias,
              const Int8Conv2d& c, Tensor out) {
  const int64_t n = x.size(0);
  const Tensor numbers = contiguous(permute(x, {0, 2, 3, 1})), codes = empty(numbers.shape(), kInt8, x.device()),
               most = empty({n}, kFloat32, x.device()),
               y = is_beside_int8(out.dtype()) ? out : empty(out.shape(), kFloat32, x.device());
  if (x.device().is_meta()) return;  // sizes are all
  quantize_rows_into(op, numbers.view({n, numbers.numel() / n}), codes.view({n, codes.numel() / n}), most);
  convolve_codes(op, codes, most, weight, column, bias, {}, c, y);
  if (!is_beside_int8(out.dtype())) out.copy_(y);
}

void check_codes(const char* op, const Tensor& weight, const Tensor& scale) {
  check_defined(op, "weight", weight);
  SF_CHECK_AS(TypeError, weight.dtype() == kInt8, op, ": weight must be int8, got ", weight.dtype());
  SF_CHECK(weight.ndim() == 4 && weight.numel() > 0, op, ": needs weight [O, KH, KW, C] that is not empty, got ",
           weight.shape());
  check_defined(op, "scale", scale);
  check_floating(op, "scale", scale);
  check_same_device(op, weight, scale);
  const int64_t n = weight.size(0);
  SF_CHECK(scale.numel() == 1 || scale.shape() == Shape({n}), op, ": scale must have one element, or shape [", n,
           "] for each output channel, got ", scale.shape());
}

// What a call's sizes come to. ValueError for what does not fit.
Int8Conv2d sizes_of(const char* op, const Tensor& input, const Tensor& weight, const Shape& stride,
                    const Shape& padding, const Shape& dilation) {
  Int8Conv2d c{input.size(1), input.size(2), input.size(3), weight.size(1), weight.size(2), 0, 0, weight.size(0), {}};
  SF_CHECK(c.channels == weight.size(3), op, ": weight ", weight.shape(), " wants ", weight.size(3),
           " input channels, got input ", input.shape());
  spread(op, "stride", stride, 2, 1, c.shape.stride);
  spread(op, "padding", padding, 2, 0, c.shape.padding);
  spread(op, "dilation", dilation, 2, 1, c.shape.dilation);
  const int64_t spare_h = c.padded_h() - c.shape.dilation[0] * (c.kh - 1) - 1,
                spare_w = c.padded_w() - c.shape.dilation[1] * (c.kw - 1) - 1;
  SF_CHECK(spare_h >= 0 && spare_w >= 0, op, ": the kernel of weight ", weight.shape(),
           " does not fit the padded input ", input.shape());
  SF_CHECK(c.row() <= kMostSummed, op, ": sums of int8 products fit an int32 up to ", kMostSummed, " of them, got ",
           c.row());
  c.out_h = spare_h / c.shape.stride[0] + 1, c.out_w = spare_w / c.shape.stride[1] + 1;
  return c;
}

// What sums of each output channel are times, float32 [O].
Tensor column_scales(const Tensor& scale, int64_t out_channels, double unit) {
  Tensor column = contiguous(to_dtype(scale.detach(), kFloat32).reshape({scale.numel()}));
  if (scale.numel() == 1) column = contiguous(column.expand({out_channels}));
  return float(unit) != 1.f ? column * double(float(unit)) : column;
}
Tensor in_float32(const Tensor& list) { return list ? contiguous(to_dtype(list.detach(), kFloat32)) : list; }

Tensor channel_rows(const Tensor& weight) {
  const int64_t n = weight.size(0);
  return contiguous(weight).view({n, weight.numel() / n});
}

}  // namespace

std::tuple<Tensor, Tensor> quantize_conv_int8(const Tensor& weight) {
  const char* op = "quantize_conv_int8";
  check_defined(op, "weight", weight);
  SF_CHECK(weight.ndim() == 4 && weight.numel() > 0, op, ": needs weight [O, C, KH, KW] that is not empty, got ",
           weight.shape());
  autograd::NoGrad off;
  const Tensor turned = contiguous(permute(weight.detach(), {0, 2, 3, 1}));
  auto [codes, most] = quantize_int8(channel_rows(turned));
  return {codes.view(turned.shape()), most};
}

Tensor dequantize_conv_int8(const Tensor& weight, const Tensor& scale, std::optional<DType> dtype, double unit) {
  check_codes("dequantize_conv_int8", weight, scale);
  autograd::NoGrad off;
  return permute(dequantize_int8(channel_rows(weight), scale, dtype, unit).view(weight.shape()), {0, 3, 1, 2});
}

Tensor conv2d_int8(const Tensor& input, const Tensor& weight, const Tensor& scale, const Tensor& bias,
                   const Shape& stride, const Shape& padding, const Shape& dilation, double unit) {
  const char* op = "conv2d_int8";
  check_defined(op, "input", input);
  check_floating(op, "input", input);
  check_codes(op, weight, scale);
  check_same_device(op, input, weight);
  SF_CHECK(input.ndim() == 4 || input.ndim() == 3, op, ": needs input [N, C, H, W] or [C, H, W], got ", input.shape());
  if (input.ndim() == 3)
    return conv2d_int8(input.unsqueeze(0), weight, scale, bias, stride, padding, dilation, unit).squeeze(0);
  autograd::refuse_gradient("conv2d_int8: a weight in int8", {scale});
  const Int8Conv2d c = sizes_of(op, input, weight, stride, padding, dilation);
  check_shape(op, "bias", bias, {c.out_channels});
  check_same_device(op, input, bias);
  const int64_t samples = input.size(0);
  Tensor y;
  {
    autograd::NoGrad off;
    const Tensor whole_weight = contiguous(weight), rows = channel_rows(whole_weight),
                 out = empty({samples * c.pixels(), c.out_channels}, input.dtype(), input.device()),
                 column = column_scales(scale, c.out_channels, unit), b = in_float32(bias);
    if (!input.device().is_cuda()) {
      if (input.numel() > 0) convolve(op, input.detach(), whole_weight, column, b, c, out);
    } else {
      for (int64_t i = 0; i < samples; ++i)
        convolve_sample(op, input.detach().narrow(0, i, 1), rows, column, b, c,
                        out.narrow(0, i * c.pixels(), c.pixels()));
    }
    y = permute(out.view({samples, c.out_h, c.out_w, c.out_channels}), {0, 3, 1, 2});
  }
  auto whole = [=, dtype = input.dtype()] { return dequantize_conv_int8(weight, scale, dtype, unit); };
  return autograd::record(op, y, {input, bias},
                          [=, sizes = input.shape(), shape = c.shape, nx = input.requires_grad(),
                           nb = bias && bias.requires_grad()](const Tensor& dy) {
                            return Tensors{nx ? conv_input_gradient(dy, whole(), sizes, shape) : Tensor(),
                                           nb ? sum(dy, Shape{0, 2, 3}) : Tensor()};
                          });
}

Tensor group_norm_silu_conv2d_int8(const Tensor& input, int64_t num_groups, const Tensor& norm_weight,
                                   const Tensor& norm_bias, double eps, const Tensor& weight, const Tensor& scale,
                                   const Tensor& bias, const Tensor& residual, const Shape& stride,
                                   const Shape& padding, const Shape& dilation, double unit) {
  const char* op = "group_norm_silu_conv2d_int8";
  const bool here = norm_weight && norm_bias && !MetaMemory::kernels_of(input.device()).is_cuda() &&
                    !autocast::active() && input.ndim() == 4 && input.numel() > 0 && is_beside_int8(input.dtype()) &&
                    input.is_contiguous(MemoryFormat::ChannelsLast);
  if (!here || autograd::any_requires_grad({input, norm_weight, norm_bias, bias, residual})) return {};
  check_codes(op, weight, scale);
  SF_CHECK(num_groups > 0 && input.size(1) % num_groups == 0, op,
           ": num_groups must divide channels, got num_groups=", num_groups, " for input ", input.shape());
  const Int8Conv2d c = sizes_of(op, input, weight, stride, padding, dilation);
  check_shape(op, "norm_weight", norm_weight, {c.channels});
  check_shape(op, "norm_bias", norm_bias, {c.channels});
  check_shape(op, "bias", bias, {c.out_channels});
  const int64_t n = input.size(0);
  const Shape sizes{n, c.out_channels, c.out_h, c.out_w};
  const bool shifts = residual && residual.shape() == Shape{n, c.out_channels, 1, 1} && residual.shape() != sizes;
  if (residual && !shifts && residual.shape() != sizes) return {};
  autograd::NoGrad off;
  const Device place = input.device();
  const Tensor codes = empty({n, c.height, c.width, c.channels}, kInt8, place), most = empty({n}, kFloat32, place),
               mean = empty({n, num_groups}, kFloat32, place), rstd = empty_like(mean),
               y = empty({n * c.pixels(), c.out_channels}, input.dtype(), place);
  const Tensor result = permute(y.view({n, c.out_h, c.out_w, c.out_channels}), {0, 3, 1, 2});
  if (place.is_meta()) return result;  // sizes are all
  const Tensor x = input.detach(), pixels = permute(x, {0, 2, 3, 1}).view({n, c.height * c.width, c.channels}),
               norm_w = in_float32(norm_weight), norm_b = in_float32(norm_bias), whole_weight = contiguous(weight),
               column = column_scales(scale, c.out_channels, unit);
  GroupNormForward statistics{x, norm_w, norm_b, num_groups, eps, true, {}, mean, rstd, {}};
  call_int8(op, group_norm_forward, statistics, place);
  const Tensor codes_of_pixels = codes.view(pixels.shape());
  call_int8(op, int8_norm_quantize,
            Int8NormQuantize{pixels, mean, rstd, norm_w, norm_b, codes_of_pixels, most, num_groups}, place);
  for (int64_t i = 0; i < n; ++i)
    SF_CHECK(!std::isnan(most.data<float>()[i]), op, ": input has numbers that are not finite");
  Tensor added = in_float32(bias), beside;
  if (shifts) {
    const Tensor shift = in_float32(residual).view({n, c.out_channels});
    added = added ? shift + added : shift;
  } else if (residual) {
    beside = contiguous(permute(to_dtype(residual.detach(), input.dtype()), {0, 2, 3, 1}));
  }
  convolve_codes(op, codes, most, whole_weight, column, added, beside, c, y);
  return result;
}

SF_OP(quantize_conv_int8, "weight")
    .doc("int8 codes [O, KH, KW, C] of a convolution's weight [O, C, KH, KW], and each output channel's magnitude.")
    .no_gradient();
SF_OP(dequantize_conv_int8, "weight, scale, dtype=None, unit=0.007874015718698502")
    .doc("The weight [O, C, KH, KW] behind int8 codes [O, KH, KW, C].")
    .no_gradient();
SF_OP(conv2d_int8, "input, weight, scale, bias=None, stride=1, padding=0, dilation=1, unit=0.007874015718698502")
    .doc("conv2d with a frozen weight [O, KH, KW, C] in int8; samples become int8 too, with exact sums.")
    .kernels(int8_quantize, int8_conv, int8_unfold, int_mm_kernel, int8_scale, conv_backward_data);

}  // namespace sf
