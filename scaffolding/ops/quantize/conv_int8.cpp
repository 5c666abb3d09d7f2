// Rows of what a kernel sees of a sample are laid out a few thousand at a time and multiplied as matrices of int8
// (int_mm), which is where every instruction set has its kernels: VNNI, tiles, pairs of 16 bits.
#include "scaffolding/ops/quantize/conv_int8.h"

#include <atomic>
#include <cstring>

#include "scaffolding/autograd/tape.h"
#include "scaffolding/core/op.h"
#include "scaffolding/core/parallel.h"
#include "scaffolding/ops/conv/conv.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/int_mm/int_mm.h"
#include "scaffolding/ops/int_mm/kernel.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/quantize/int8_codes.h"
#include "scaffolding/ops/quantize/int8_kernel.h"
#include "scaffolding/ops/reduce/reduce.h"
#include "scaffolding/ops/view/view.h"

namespace sf {

namespace {

// Bytes of laid out rows: they stay in a cache until they are multiplied. With fewer, packing the weight for each lot
// of rows counts.
constexpr int64_t kRowBytes = 2 << 20;
// And on CUDA, with their sums: as many as fill it.
constexpr int64_t kDeviceBytes = 64 << 20;

struct Int8Conv {
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

// x[H, W, C] to codes within zeros, [padded_h, padded_w, C]; the largest magnitude, NaN where a number is not finite.
float quantize_sample(const float* x, const Int8Conv& c, int8_t* codes) {
  const int64_t line = c.width * c.channels, each = std::max<int64_t>(1, 16384 / std::max<int64_t>(1, line));
  std::atomic<float> largest = 0;
  std::atomic<bool> finite = true;
  parallel_for(c.height, each, [&](int64_t begin, int64_t end) {
    const float here = largest_magnitude(x + begin * line, (end - begin) * line);
    if (!std::isfinite(here)) return finite.store(false, std::memory_order_relaxed);
    for (float seen = largest.load(std::memory_order_relaxed);
         seen < here && !largest.compare_exchange_weak(seen, here, std::memory_order_relaxed);) {}
  });
  if (!finite) return NAN;
  const float by = code_factor(largest);
  const int64_t padded = c.padded_w() * c.channels, left = c.shape.padding[1] * c.channels;
  parallel_for(c.padded_h(), each, [&](int64_t begin, int64_t end) {
    for (int64_t y = begin; y < end; ++y) {
      int8_t* to = codes + y * padded;
      const int64_t from = y - c.shape.padding[0];
      if (from < 0 || from >= c.height) {
        std::memset(to, 0, size_t(padded));
        continue;
      }
      std::memset(to, 0, size_t(left));
      to_codes(x + from * line, line, by, to + left);
      std::memset(to + left + line, 0, size_t(left));
    }
  });
  return largest;
}

// What the kernel sees at the output's pixels p0 .. p1, a row each: [p1 - p0, KH KW C].
void lay_out(const int8_t* codes, const Int8Conv& c, int64_t p0, int64_t p1, int8_t* rows) {
  const int64_t row = c.row(), tap = c.kw * c.channels, each = std::max<int64_t>(1, 65536 / row);
  parallel_for(p1 - p0, each, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      const int64_t y = (p0 + p) / c.out_w * c.shape.stride[0], x = (p0 + p) % c.out_w * c.shape.stride[1];
      int8_t* to = rows + p * row;
      for (int64_t i = 0; i < c.kh; ++i, to += tap) {
        const int8_t* from = codes + ((y + i * c.shape.dilation[0]) * c.padded_w() + x) * c.channels;
        if (c.shape.dilation[1] == 1) std::memcpy(to, from, size_t(tap));
        else
          for (int64_t j = 0; j < c.kw; ++j)
            std::memcpy(to + j * c.channels, from + j * c.shape.dilation[1] * c.channels, size_t(c.channels));
      }
    }
  });
}

// float(sums[r, n]) * row * column[n] + bias[n]
void scale_to(const int32_t* sums, int64_t rows, int64_t n, float row, const float* column, const float* bias,
              float* to) {
  parallel_for(rows, std::max<int64_t>(1, 16384 / n), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      for (int64_t i = 0; i < n; ++i) {
        const float y = float(sums[r * n + i]) * row * column[i];
        to[r * n + i] = bias ? y + bias[i] : y;
      }
  });
}

// The same on CUDA, where int8_unfold knows what is padded.
void convolve_on_device(const char* op, const Tensor& x, const Tensor& weight, const Tensor& column, const Tensor& bias,
                        const Int8Conv& c, const Tensor& out) {
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

// x[1, C, H, W] to out[pixels, O] of any floating dtype. weight[O, KH KW C].
void convolve_sample(const char* op, const Tensor& x, const Tensor& weight, const Tensor& column, const Tensor& bias,
                     const Int8Conv& c, const Tensor& out) {
  if (x.device().is_cuda()) return convolve_on_device(op, x, weight, column, bias, c, out);
  const Tensor numbers = contiguous(permute(to_dtype(x, kFloat32), {0, 2, 3, 1}));
  const Tensor codes = empty({c.padded_h() * c.padded_w(), c.channels}, kInt8, x.device());
  const int64_t k = c.row(), n = c.out_channels, pixels = c.pixels(),
                lot = std::min(pixels, std::max<int64_t>(64, kRowBytes / k));
  const Tensor rows = c.pointwise() ? codes : empty({lot, k}, kInt8, x.device());
  const Tensor sums = empty({lot, n}, kInt32, x.device());
  const Tensor scaled = out.dtype() == kFloat32 ? out : empty({lot, n}, kFloat32, x.device());
  if (!x.device().is_cpu()) return;  // without memory: sizes are all
  const float most = quantize_sample(static_cast<const float*>(numbers.data_ptr()), c, codes.data<int8_t>());
  SF_CHECK(!std::isnan(most), op, ": input has numbers that are not finite");
  const float* b = bias ? bias.data<float>() : nullptr;
  for (int64_t p = 0; p < pixels; p += lot) {
    const int64_t count = std::min(lot, pixels - p);
    if (!c.pointwise()) lay_out(codes.data<int8_t>(), c, p, p + count, rows.data<int8_t>());
    const Tensor a = c.pointwise() ? codes.narrow(0, p, count) : rows.narrow(0, 0, count), w = weight.t(),
                 s = sums.narrow(0, 0, count);
    const IntMm g{a, w, s};
    auto kernel = int_mm_kernel.find(x.device(), g);
    SF_CHECK_AS(NotSupported, kernel, op, ": no kernel on ", x.device());
    kernel(g);
    float* to = out.dtype() == kFloat32 ? out.data<float>() + p * n : scaled.data<float>();
    scale_to(sums.data<int32_t>(), count, n, most * float(kInt8Unit), column.data<float>(), b, to);
    if (out.dtype() != kFloat32) out.narrow(0, p, count).copy_(scaled.narrow(0, 0, count));
  }
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
  Int8Conv c{input.size(1), input.size(2), input.size(3), weight.size(1), weight.size(2), 0, 0, weight.size(0), {}};
  SF_CHECK(c.channels == weight.size(3), op, ": weight ", weight.shape(), " wants ", weight.size(3),
           " input channels, got input ", input.shape());
  check_shape(op, "bias", bias, {c.out_channels});
  check_same_device(op, input, bias);
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
  const int64_t samples = input.size(0);
  Tensor y;
  {
    autograd::NoGrad off;
    const Tensor rows = channel_rows(weight),
                 out = empty({samples * c.pixels(), c.out_channels}, input.dtype(), input.device());
    Tensor column = contiguous(to_dtype(scale.detach(), kFloat32).reshape({scale.numel()}));
    if (scale.numel() == 1) column = contiguous(column.expand({c.out_channels}));
    if (float(unit) != 1.f) column = column * double(float(unit));
    const Tensor b = bias ? contiguous(to_dtype(bias.detach(), kFloat32)) : bias;
    for (int64_t i = 0; i < samples; ++i)
      convolve_sample(op, input.detach().narrow(0, i, 1), rows, column, b, c,
                      out.narrow(0, i * c.pixels(), c.pixels()));
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

SF_OP(quantize_conv_int8, "weight")
    .doc("int8 codes [O, KH, KW, C] of a convolution's weight [O, C, KH, KW], and each output channel's magnitude.")
    .no_gradient();
SF_OP(dequantize_conv_int8, "weight, scale, dtype=None, unit=0.007874015718698502")
    .doc("The weight [O, C, KH, KW] behind int8 codes [O, KH, KW, C].")
    .no_gradient();
SF_OP(conv2d_int8, "input, weight, scale, bias=None, stride=1, padding=0, dilation=1, unit=0.007874015718698502")
    .doc("conv2d with a frozen weight [O, KH, KW, C] in int8; samples become int8 too, with exact sums.")
    .kernels(int8_quantize, int8_unfold, int_mm_kernel, int8_scale, conv_backward_data);

}  // namespace sf
