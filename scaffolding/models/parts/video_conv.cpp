#include "scaffolding/models/parts/video_conv.h"

#include "scaffolding/autograd/autocast.h"
#include "scaffolding/autograd/tape.h"
#include "scaffolding/models/parts/projections.h"
#include "scaffolding/nn/streaming/residence.h"
#include "scaffolding/ops/conv/conv_residual.h"
#include "scaffolding/ops/fused/framed_norm/norm_silu_framed.h"
#include "scaffolding/ops/ops.h"

namespace sf::models {

namespace {

// Videos [B, C, T, H, W] as rows of channels [B, T, H, W, C], views where they are channels-last, and back.
Tensor channel_rows(const Tensor& video) { return video.permute({0, 2, 3, 4, 1}); }
Tensor of_channel_rows(const Tensor& rows) { return rows.permute({0, 4, 1, 2, 3}); }

Tensor with_frames(Tensor x, FramesAround around) {
  const Tensor rows = channel_rows(x);
  x = {};
  Tensors parts(size_t(around.before), rows.narrow(1, 0, 1));
  parts.push_back(rows);
  parts.insert(parts.end(), size_t(around.behind), rows.narrow(1, rows.size(1) - 1, 1));
  return of_channel_rows(cat(parts, 1));
}

// conv(x) + residual past the layer's call, of what has all its frames already and, if `bordered`, is padded too.
Tensor plain_conv(const nn::Conv3d& conv, const Tensor& x, bool bordered, const Tensor& residual) {
  const nn::WeightsHere here(conv);
  const Shape padding = bordered ? Shape{0, 0, 0} : conv.padding.amounts;
  const bool in_one = residual && !autocast::active() && residual.dtype() == x.dtype() &&
                      !autograd::any_requires_grad({x, conv.weight, conv.bias, residual});
  if (!in_one) {
    const Tensor y = conv3d(x, conv.weight, conv.bias, conv.stride, padding, conv.dilation, conv.groups);
    return residual ? y + residual : y;
  }
  ConvShape shape{.groups = conv.groups};
  for (int i = 0; i < 3; ++i)
    shape.stride[i] = conv.stride[i], shape.padding[i] = padding[i], shape.dilation[i] = conv.dilation[i];
  return conv_plus_residual(x, conv.weight, conv.bias, residual, shape);
}

// of frames that are there
Tensor conv_of(const nn::Conv3d& conv, const Tensor& x, bool bordered, const Tensor& residual) {
  if (bordered || (is_plain(conv) && conv.pads_with_zeros() && !conv.padding.same))
    return plain_conv(conv, x, bordered, residual);
  return residual ? conv(x) + residual : conv(x);
}

bool reflects_one(const nn::Conv3d& conv) {
  return conv.padding_mode == "reflect" && !conv.padding.same && conv.padding.amounts == Shape{0, 1, 1};
}

}  // namespace

Tensor conv_with_frames(const nn::Conv3d& conv, Tensor x, FramesAround around, const Tensor& residual) {
  return conv_of(conv, with_frames(std::move(x), around), false, residual);
}

Tensor norm_silu(const ChannelNorm& norm, const Tensor& x) {
  const Tensor rows = channel_rows(x);
  return of_channel_rows(silu(norm.scale ? rms_norm_modulate(rows, norm.scale, norm.shift, {}, norm.eps)
                                         : rms_norm(rows, {x.size(1)}, {}, norm.eps)));
}

Tensor norm_silu_conv(const ChannelNorm& norm, const nn::Conv3d& conv, Tensor x, FramesAround around,
                      const Tensor& residual) {
  const bool bordered = is_plain(conv) && reflects_one(conv);
  Tensor framed =
      rms_norm_silu_framed(x, norm.scale, norm.shift, norm.eps, around.before, around.behind, bordered ? 1 : 0);
  if (!framed) return conv_with_frames(conv, norm_silu(norm, x), around, residual);
  x = {};
  return conv_of(conv, framed, bordered, residual);
}

}  // namespace sf::models
