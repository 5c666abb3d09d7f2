// 3x3 convolutions of stride 1 in float32 by Winograd's F(4x4, 3x3): 36 multiplications per tile where direct summation
// takes 144. Of videos, each of up to three frames of a kernel is one, and a frame is transformed for all of them.
// Works on channels-last memory as it is, on contiguous memory by way of a copy; nothing is kept between calls.
// bfloat16, channels-last, widens to float32 on the way in and is rounded on the way out: a quarter of the
// multiplications is less than vdpbf16ps saves (Zen 5, two cores, Stable Diffusion's 3x3 layers: 1150 GFLOP/s against
// 680 of a direct sum in bfloat16). The rounding leaves room for larger tiles too, F(8x8, 3x3) (Zen 4, two cores, 320
// channels at 64x64: 900 GFLOP/s against 690 by F(4x4, 3x3)).
// The gradient of x is the same convolution with weights turned round; conv_winograd_weights.cpu.cpp has that of the
// weight. Kernels of three frames that are 1x1 in the picture, or 3x3 with a stride of 2: conv_over_time.cpu.cpp.
#include "scaffolding/ops/conv/kernel.h"

// Not for base, which is compiled to be correct, not to be fast.
#if defined(SF_ISA_PRIORITY) && SF_ISA_PRIORITY > 0
#include "scaffolding/ops/conv/winograd_calls.h"
#include "scaffolding/ops/conv/winograd_over_time.h"
#include "scaffolding/ops/fused/finished_conv/kernel.h"

namespace sf {
namespace SF_ISA {

template <class T, class W = T> static void forward_laid(const ConvForward& f, const T* x, T* y, const T* residual) {
  const Image<T> image = image_of(f.x, x, f.weight), of_y = image_of<T>(f.y, y, f.weight);
  const int at = picture_dims(f.weight);
  const Taps taps = taps_of(f.weight, f.shape, image.frames, of_y.frames, false);
  const Output<T> out{y,
                      of_y.height,
                      of_y.width,
                      of_y.channels,
                      f.bias ? f.bias.data : nullptr,
                      f.bias ? f.bias.dtype : kFloat32,
                      residual,
                      f.act,
                      nullptr,
                      of_y.frames};
  convolve(image, filter_of<W>(f.weight, false, taps), out, {f.shape.padding[at], f.shape.padding[at + 1], taps.lead});
}
template <class W> static void forward_float(const ConvForward& f) {
  const Laid lx(f.x, kSlotX, true), ly(f.y, kSlotY, false), lr(f.residual, kSlotResidual, true);
  forward_laid<float, W>(f, lx.data(), ly.data(), f.residual ? lr.data() : nullptr);
  ly.write_back();
}
static void narrow_forward(const NarrowConvForward& f) {
  if (f.conv.weight.dtype == kFloat16) forward_float<Half>(f.conv);
  else forward_float<BFloat16>(f.conv);
}
static void forward(const ConvForward& f) {
  if (is_shape_over_time(f.weight, f.shape)) return convolve_over_time(f);
  if (f.x.dtype == kFloat32) return forward_float<float>(f);
  forward_laid<BFloat16>(f, f.x.as<const BFloat16>(), f.y.as<BFloat16>(),
                         f.residual ? f.residual.as<const BFloat16>() : nullptr);
}

// gain and offset of every channel: group_norm as one multiplication and one addition.
static void fold_norm(const PreparedConvForward& f, float* gain, float* offset) {
  const int64_t N = f.conv.x.sizes[0], C = f.conv.x.sizes[1], wide = C / f.groups;
  const float *mean = f.mean.as<const float>(), *rstd = f.rstd.as<const float>();
  const float *weight = f.norm_weight.as<const float>(), *bias = f.norm_bias.as<const float>();
  for (int64_t i = 0; i < N * C; ++i) {
    const int64_t c = i % C, group = i / C * f.groups + c / wide;
    const double a = double(rstd[group]) * double(weight[c]);
    gain[i] = float(a);
    offset[i] = float(double(bias[c]) - double(mean[group]) * a);
  }
}

// A residual of one pixel is added to all pixels.
static bool is_shift(const ConvForward& f) {
  return f.residual && f.residual.sizes[2] == 1 && f.residual.sizes[3] == 1 && f.y.sizes[2] * f.y.sizes[3] > 1;
}

static void forward_prepared(const PreparedConvForward& p) {
  const ConvForward& f = p.conv;
  const Image<float> x{f.x.as<const float>(), f.x.sizes[0], f.x.sizes[2], f.x.sizes[3], f.x.sizes[1]};
  const Output<float> y{f.y.as<float>(),
                        f.y.sizes[2],
                        f.y.sizes[3],
                        f.y.sizes[1],
                        f.bias ? f.bias.data : nullptr,
                        kFloat32,
                        f.residual && !is_shift(f) ? f.residual.as<const float>() : nullptr,
                        f.act,
                        is_shift(f) ? f.residual.as<const float>() : nullptr};
  Preparation prepared{p.repeat};
  if (p.mean) {
    float* folded = static_cast<float*>(scratch(size_t(2 * x.batch * x.channels) * 4, kSlotY));
    fold_norm(p, folded, folded + x.batch * x.channels);
    prepared.gain = folded, prepared.offset = folded + x.batch * x.channels;
  }
  auto run = [&](auto tag) {
    using W = typename decltype(tag)::type;
    convolve(x, filter_of<W>(f.weight, false, {0, 1, 0}), y, {f.shape.padding[0], f.shape.padding[1]}, &prepared);
  };
  if (f.weight.dtype == kFloat16) run(type_tag<Half>{});
  else if (f.weight.dtype == kBFloat16) run(type_tag<BFloat16>{});
  else run(type_tag<float>{});
}

// Numbers from pixel to pixel of channels-last memory, of which a tensor may be some channels.
SF_INLINE int64_t pixel_of(const TensorView& t) {
  for (int d = 3; d >= 2; --d)
    if (t.sizes[d] != 1) return d == 3 ? t.strides[3] : t.strides[2] / t.sizes[3];
  return t.sizes[0] != 1 ? t.strides[0] : t.sizes[1];
}

static void forward_finished(const FinishedConvForward& p) {
  const ConvForward& f = p.conv;
  Finish finish{pixel_of(f.y), 0, 0, nullptr, nullptr, p.scale, p.residual_scale};
  if (f.residual) finish.residual_pixel = pixel_of(f.residual);
  if (p.slopes) finish.slopes = p.slopes.as<const float>();
  if (p.second) finish.second = p.second.as<const float>(), finish.second_pixel = pixel_of(p.second);
  const Image<float> x{f.x.as<const float>(), f.x.sizes[0], f.x.sizes[2], f.x.sizes[3], f.x.sizes[1], 1, pixel_of(f.x)};
  const Output<float> y{f.y.as<float>(),
                        f.y.sizes[2],
                        f.y.sizes[3],
                        f.y.sizes[1],
                        f.bias ? f.bias.data : nullptr,
                        kFloat32,
                        f.residual ? f.residual.as<const float>() : nullptr,
                        Activation::None,
                        nullptr,
                        1,
                        &finish};
  const Preparation prepared{p.repeat};
  convolve(x, filter_of<float>(f.weight, false, {0, 1, 0}), y, {f.shape.padding[0], f.shape.padding[1]},
           p.repeat > 1 ? &prepared : nullptr);
}

template <class T> static void backward_data_laid(const ConvBackwardData& f, const T* dy, T* dx) {
  const Image<T> image = image_of(f.dy, dy, f.weight), of_x = image_of<T>(f.dx, dx, f.weight);
  const int at = picture_dims(f.weight);
  const Taps taps = taps_of(f.weight, f.shape, image.frames, of_x.frames, true);
  const Output<T> out{dx,       of_x.height, of_x.width,       of_x.channels, nullptr,
                      kFloat32, nullptr,     Activation::None, nullptr,       of_x.frames};
  convolve(image, filter_of<T>(f.weight, true, taps), out,
           {2 - f.shape.padding[at], 2 - f.shape.padding[at + 1], taps.lead});
}
static void backward_data(const ConvBackwardData& f) {
  if (is_shape_over_time(f.weight, f.shape)) return convolve_over_time(f);
  if (f.dy.dtype == kBFloat16) return backward_data_laid<BFloat16>(f, f.dy.as<const BFloat16>(), f.dx.as<BFloat16>());
  const Laid ly(f.dy, kSlotY, true), lx(f.dx, kSlotX, false);
  backward_data_laid<float>(f, ly.data(), lx.data());
  lx.write_back();
}

static bool supports_forward(const ConvForward& f) {
  const bool floats =
      float_image(f.x) && float_image(f.y) && float_image(f.residual) && (!f.bias || f.bias.dtype == kFloat32);
  if (floats && is_worth_over_time(f)) return true;
  const bool halves = !floats && bf16_image(f.x) && bf16_image(f.y) && bf16_image(f.residual);
  return (floats || halves) && shape_ok(f.weight, f.shape) && worth(f.y);
}
static bool supports_narrow(const NarrowConvForward& f) {
  const ConvForward& c = f.conv;
  return float_image(c.x) && float_image(c.y) && float_image(c.residual) && (!c.bias || c.bias.dtype == kFloat32) &&
         c.weight.ndim == 4 && shape_ok(c.weight, c.shape) && worth(c.y);
}
static bool supports_prepared(const PreparedConvForward& f) {
  auto last = [](const TensorView& t) { return !t || t.is_channels_last(); };
  return f.conv.x.dtype == kFloat32 && f.conv.x.ndim == 4 && last(f.conv.x) && last(f.conv.y) &&
         last(f.conv.residual) && supports_forward(f.conv);
}
// Some channels of channels-last memory.
static bool float_pixels(const TensorView& t) {
  if (t.ndim != 4 || t.dtype != kFloat32 || (t.sizes[1] != 1 && t.strides[1] != 1)) return false;
  int64_t pixel = pixel_of(t);
  for (int d : {3, 2, 0}) {
    if (t.sizes[d] != 1 && t.strides[d] != pixel) return false;
    pixel *= t.sizes[d];
  }
  return pixel_of(t) >= t.sizes[1];
}
static bool supports_finished(const FinishedConvForward& f) {
  const ConvForward& c = f.conv;
  return float_pixels(c.x) && (f.repeat == 1 || c.x.is_channels_last()) && float_pixels(c.y) &&
         (!c.residual || float_pixels(c.residual)) && (!f.second || float_pixels(f.second)) &&
         (!c.bias || c.bias.dtype == kFloat32) && shape_ok(c.weight, c.shape) && worth(c.y);
}
static bool supports_data(const ConvBackwardData& f) {
  const bool floats = float_image(f.dy) && float_image(f.dx), halves = !floats && bf16_image(f.dy) && bf16_image(f.dx);
  if (floats && is_worth_over_time(f)) return true;
  return (floats || halves) && shape_ok(f.weight, f.shape) && worth(f.dx);
}

}  // namespace SF_ISA

SF_KERNEL(conv_forward, DeviceType::CPU, "winograd", 20 + SF_ISA_PRIORITY, SF_ISA::forward, SF_ISA::supports_forward)
SF_KERNEL(narrow_conv_forward, DeviceType::CPU, "winograd", 20 + SF_ISA_PRIORITY, SF_ISA::narrow_forward,
          SF_ISA::supports_narrow)
SF_KERNEL(prepared_conv_forward, DeviceType::CPU, "winograd", 20 + SF_ISA_PRIORITY, SF_ISA::forward_prepared,
          SF_ISA::supports_prepared)
SF_KERNEL(finished_conv_forward, DeviceType::CPU, "winograd", 20 + SF_ISA_PRIORITY, SF_ISA::forward_finished,
          SF_ISA::supports_finished)
SF_KERNEL(conv_backward_data, DeviceType::CPU, "winograd", 20 + SF_ISA_PRIORITY, SF_ISA::backward_data,
          SF_ISA::supports_data)

}  // namespace sf
#endif
