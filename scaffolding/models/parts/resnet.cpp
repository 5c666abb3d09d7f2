#include "scaffolding/models/parts/resnet.h"

#include "scaffolding/autograd/autocast.h"
#include "scaffolding/autograd/tape.h"
#include "scaffolding/models/parts/fir_resample.h"
#include "scaffolding/models/parts/projections.h"
#include "scaffolding/models/parts/time_shifts.h"
#include "scaffolding/nn/half_weights.h"
#include "scaffolding/nn/looked_at.h"
#include "scaffolding/nn/quantized_conv.h"
#include "scaffolding/nn/streaming/residence.h"
#include "scaffolding/ops/fused/prepared_conv/in_place.h"
#include "scaffolding/ops/ops.h"
#include "scaffolding/ops/quantize/half_rows.h"

namespace sf::models {

namespace {
// What keeps a convolution's weight in 16 bits in its place (nn/half_weights.h), where nothing else is to be seen.
const nn::Conv2dHalf* kept_half(const nn::Conv2d& conv) {
  auto* half = dynamic_cast<const nn::Conv2dHalf*>(conv.present());
  return half && !nn::is_watched(conv) && is_plain(*half) ? half : nullptr;
}
// The same of int8 whose input becomes int8 too.
const nn::Conv2dInt8* kept_int8(const nn::Conv2d& conv) {
  auto* int8 = dynamic_cast<const nn::Conv2dInt8*>(conv.present());
  const bool plain = int8 && !nn::is_watched(conv) && is_plain(*int8) && int8->dynamic && !int8->padding.same;
  return plain ? int8 : nullptr;
}
// What fused convolutions read, which go past the layer's call: its own weight, or that; null where neither is allowed.
const Tensor* read_weight(const nn::Conv2d& conv) {
  if (is_plain(conv)) return &conv.weight;
  auto* half = kept_half(conv);
  return half ? &half->narrow : nullptr;
}

// No other tensor sees these bytes.
bool is_sole_owner(const Tensor& t) { return t.storage() && t.impl()->refs == 1 && t.storage()->refs == 1; }

constexpr size_t kLargePicture = size_t(16) << 20;  // bytes from which it pays to go without a second picture

// conv(x) of a 1x1 convolution to no more channels, in the bytes of x: of a band of pixels at a time, whose results lie
// where pixels were read before. Not on CUDA, where a band is a launch and a copy.
bool shrink_in_place(const nn::Conv2d& conv, Tensor& x) {
  const Tensor* there = read_weight(conv);
  if (!there) return false;
  const int64_t in = x.size(1), out = there->size(0), pixels = in ? x.numel() / in : 0, band = 16384;
  if (x.device().is_cuda() || autograd::any_requires_grad({x, *there, conv.bias}) || x.nbytes() < kLargePicture ||
      out > in || there->numel() != out * in || autocast::active() || !x.is_contiguous(MemoryFormat::ChannelsLast) ||
      !is_sole_owner(x))
    return false;
  const Tensor read = Tensor::strided(x.storage(), {pixels, in}, {in, 1}, x.storage_offset(), x.dtype()),
               weight = there->reshape({out, in});
  Tensor write = Tensor::strided(x.storage(), {pixels, out}, {out, 1}, x.storage_offset(), x.dtype());
  for (int64_t p = 0; p < pixels; p += band) {
    const int64_t n = std::min(band, pixels - p);
    write.narrow(0, p, n).copy_(linear_half(read.narrow(0, p, n), weight, conv.bias));
  }
  const Shape sizes{x.size(0), out, x.size(2), x.size(3)};
  x = Tensor::strided(x.storage(), sizes, {out * sizes[2] * sizes[3], 1, out * sizes[3], out}, x.storage_offset(),
                      x.dtype());
  return true;
}

}  // namespace

Tensor norm_silu(const nn::GroupNorm& norm, const Tensor& x) {
  return is_plain(norm) ? group_norm_silu(x, norm.num_groups, norm.weight, norm.bias, norm.eps) : silu(norm(x));
}

Tensor norm_silu_conv(const nn::GroupNorm& norm, const nn::Conv2d& conv, const Tensor& x, const Tensor& residual) {
  if (is_plain_beside_lora(conv) && is_plain(norm)) {
    Tensor added = residual;
    if (auto lora = lora_of(conv)) {
      const Tensor h = norm_silu(norm, x);
      added = residual ? lora->beside(residual, h) : lora->side(h);
    }
    return group_norm_silu_conv2d(x, norm.num_groups, norm.weight, norm.bias, conv.weight, conv.bias, added, norm.eps);
  }
  if (auto* half = kept_half(conv); half && is_plain(norm))
    if (const Tensor y = group_norm_silu_narrow_conv2d(x, norm.num_groups, norm.weight, norm.bias, half->narrow,
                                                       half->bias, residual, norm.eps))
      return y;
  if (auto* int8 = kept_int8(conv); int8 && is_plain(norm))
    if (const Tensor y =
            group_norm_silu_conv2d_int8(x, norm.num_groups, norm.weight, norm.bias, norm.eps, int8->codes, int8->SCB,
                                        int8->bias, residual, int8->stride, int8->padding.amounts, int8->dilation))
      return y;
  Tensor y = conv(norm_silu(norm, x));
  return residual ? y + residual : y;
}

ResnetBlock2D::ResnetBlock2D(int64_t in_channels, int64_t out_channels, const ResnetBlock2DOptions& o)
    : norm1(o.groups, in_channels, o.eps),
      conv1(in_channels, out_channels, 3, {.padding = 1}),
      norm2(o.groups_out.value_or(o.groups), out_channels, o.eps),
      dropout(o.dropout),
      conv2(out_channels, out_channels, 3, {.padding = 1}),
      output_scale_factor(o.output_scale_factor),
      scale_shift(o.scale_shift),
      skip_time_act(o.skip_time_act),
      resample(o.resample),
      fir(o.fir) {
  if (o.temb_channels) time_emb_proj.emplace(*o.temb_channels, scale_shift ? 2 * out_channels : out_channels);
  if (o.shortcut || in_channels != out_channels) conv_shortcut.emplace(in_channels, out_channels, 1, nn::ConvOptions{});
}

bool ResnetBlock2D::takes_shifts() const {
  return time_emb_proj && time_emb_proj->bias && conv1.bias && !scale_shift && !skip_time_act &&
         resample == Resample::None && is_plain(*time_emb_proj) && is_plain(conv1) && is_plain(norm1);
}

Tensor ResnetBlock2D::forward(Tensor input, const Tensor& temb) const {
  Tensor t, h;
  const TimeShifts* shifts = time_emb_proj && takes_shifts() ? TimeShifts::current(temb) : nullptr;
  if (resample != Resample::None) {
    t = time_of(nullptr, temb, input.size(0));
    h = conv1(resampled(norm_silu(norm1, input)));
    if (t && !scale_shift) h = h + t;
    input = resampled(input);
  } else if (shifts && shifts->is_one()) {  // the same for all pictures: with the bias, which a convolution adds anyway
    h = group_norm_silu_conv2d(input, norm1.num_groups, norm1.weight, norm1.bias, conv1.weight,
                               shifts->of(*this).flatten(), {}, norm1.eps);
  } else {
    t = time_of(shifts, temb, input.size(0));
    h = norm_silu_conv(norm1, conv1, input, scale_shift ? Tensor() : t);
  }
  if (conv_shortcut && !shrink_in_place(*conv_shortcut, input)) input = (*conv_shortcut)(input);
  return second_half(h, std::move(input), t);
}

Tensor ResnetBlock2D::resampled(const Tensor& x) const {
  if (resample == Resample::Up) return fir ? fir_upsample_2d(x) : interpolate(x, {}, Floats{2, 2});
  return fir ? fir_downsample_2d(x) : avg_pool2d(x, {2, 2}, {2, 2});
}

Tensor ResnetBlock2D::with_skip(const Tensor& input, const Tensor& skip, const Tensor& temb) const {
  const nn::WeightsHere here(*this);
  const TimeShifts* shifts = time_emb_proj && takes_shifts() ? TimeShifts::current(temb) : nullptr;
  Tensor h = cat_group_norm_silu(input, skip, norm1.num_groups, norm1.weight, norm1.bias, norm1.eps);
  if (shifts && shifts->is_one()) {
    h = conv2d(h, conv1.weight, shifts->of(*this).flatten(), {1}, {1});
  } else {
    h = conv1(h);
    if (Tensor t = time_of(shifts, temb, input.size(0))) h = h + t;
  }
  // A 1x1 convolution of both is the sum of each one's with its columns of the weight.
  auto rows = [](const Tensor& x) { return x.permute({0, 2, 3, 1}); };
  const int64_t near = input.size(1), in = near + skip.size(1);
  const Tensor weight = conv_shortcut->weight.reshape({conv_shortcut->weight.size(0), in});
  Tensor shortcut = linear_add(rows(skip), weight.narrow(1, near, in - near), conv_shortcut->bias,
                               linear(rows(input), weight.narrow(1, 0, near)));
  return second_half(h, shortcut.permute({0, 3, 1, 2}), {});
}

bool ResnetBlock2D::reads_apart(const Tensor& input, const Tensor& skip) const {
  if (!input.device().is_cuda() || autocast::active() || !conv_shortcut || scale_shift || !is_plain(*this))
    return false;
  if (!is_plain(norm1) || !is_plain(conv1) || !is_plain(*conv_shortcut)) return false;
  for (auto& t : {input, skip})
    if (t.ndim() != 4 || !t.is_contiguous(MemoryFormat::ChannelsLast) || t.dtype() != conv_shortcut->weight.dtype())
      return false;
  return input.size(1) + skip.size(1) == conv_shortcut->weight.size(1) &&
         !autograd::any_requires_grad({input, skip, norm1.weight, conv_shortcut->weight});
}

// What the time embedding adds (or, scale_shift, how it scales) [B, C, 1, 1]; empty for a block without one.
Tensor ResnetBlock2D::time_of(const TimeShifts* shifts, const Tensor& temb, int64_t batch) const {
  Tensor t;
  if (shifts) t = shifts->of(*this);
  else if (time_emb_proj) t = (*time_emb_proj)(skip_time_act ? temb : silu(temb));
  return t ? t.expand({batch, t.size(1)}).unsqueeze(-1).unsqueeze(-1) : t;
}

Tensor ResnetBlock2D::second_half(const Tensor& first, Tensor shortcut, const Tensor& t) const {
  Tensor h = first;
  const bool drops = dropout.training && dropout.p.to_double() > 0;
  if (scale_shift || drops) {
    if (scale_shift) {
      Tensors parts = chunk(t, 2, 1);
      h = silu(norm2(h) * (1 + parts[0]) + parts[1]);
    } else {
      h = norm_silu(norm2, h);
    }
    h = shortcut + conv2(dropout(h));
  } else {
    const Tensor* weight = read_weight(conv2);
    const bool in_place = weight && is_sole_owner(shortcut) && shortcut.nbytes() >= kLargePicture && is_plain(norm2) &&
                          group_norm_silu_conv2d_into(shortcut, h, norm2.num_groups, norm2.weight, norm2.bias, *weight,
                                                      conv2.bias, norm2.eps);
    h = in_place ? shortcut : norm_silu_conv(norm2, conv2, h, shortcut);
  }
  return output_scale_factor == 1 ? h : h / output_scale_factor;
}

Downsample2D::Downsample2D(int64_t channels, int64_t out_channels, int64_t pad)
    : conv(channels, out_channels, 3, {.stride = 2, .padding = nn::Ints(pad).values}), padding(pad) {}

Tensor Downsample2D::forward(const Tensor& x) const {
  return conv(padding == 0 ? nn::padded_by_mode(x, {0, 1, 0, 1}, padding_mode) : x);
}

Upsample2D::Upsample2D(int64_t channels, int64_t out_channels) : conv(channels, out_channels, 3, {.padding = 1}) {}

Tensor Upsample2D::resize(const Tensor& x, const std::optional<Shape>& output_size) const {
  const nn::WeightsHere here(*this);
  const bool doubles = !output_size || *output_size == Shape{2 * x.size(2), 2 * x.size(3)};
  if (doubles && is_plain(conv)) return upsample_conv2d(x, conv.weight, conv.bias);
  if (auto* half = doubles ? kept_half(conv) : nullptr)
    if (const Tensor y = upsample_narrow_conv2d(x, half->narrow, half->bias)) return y;
  return conv(output_size ? interpolate(x, output_size) : interpolate(x, {}, Floats{2, 2}));
}

}  // namespace sf::models
