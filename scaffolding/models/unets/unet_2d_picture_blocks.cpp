#include "scaffolding/models/unets/unet_2d_picture_blocks.h"

#include <numbers>

#include "scaffolding/core/error.h"
#include "scaffolding/models/parts/fir_resample.h"
#include "scaffolding/ops/ops.h"

namespace sf::models {

namespace {

constexpr int64_t kPictureChannels = 3;  // that go beside levels that skip
constexpr int64_t kSkipAttentionGroups = 32;

double scale_factor(const PictureLevelOptions& o) { return o.kind.skip ? std::numbers::sqrt2 : 1.0; }

AttentionOptions attention_options(int64_t channels, const std::optional<int64_t>& head_dim,
                                   const std::optional<int64_t>& groups, double eps, double scale) {
  const int64_t dim = head_dim.value_or(channels);
  SF_CHECK(dim > 0 && channels >= dim, "UNet2DModel: attention_head_dim must be positive and at most the ", channels,
           " channels of a level with attention, got ", dim);
  return {.heads = channels / dim,
          .dim_head = dim,
          .bias = true,
          .norm_num_groups = groups,
          .eps = eps,
          .rescale_output_factor = scale,
          .residual_connection = true};
}

AttentionOptions attention_options(const PictureLevelOptions& o) {
  return attention_options(o.out_channels, o.attention_head_dim,
                           o.kind.skip ? std::optional(kSkipAttentionGroups) : o.groups, o.eps, scale_factor(o));
}

// groups_in: of the first norm, of a level that skips.
ResnetBlock2DOptions resnet_options(const PictureLevelOptions& o, int64_t groups_in) {
  SF_CHECK(o.kind.skip || o.groups, "UNet2DModel: norm_num_groups must be a number where levels do not skip, got None");
  return {.temb_channels = o.temb_channels,
          .groups = o.kind.skip ? groups_in : *o.groups,
          .groups_out = o.kind.skip ? std::optional(groups_of(o.out_channels)) : std::nullopt,
          .eps = o.eps,
          .dropout = o.dropout,
          .output_scale_factor = scale_factor(o),
          .scale_shift = o.scale_shift};
}

// That changes the size at a level's end.
ResnetBlock2DOptions resizing_options(const PictureLevelOptions& o, Resample resample) {
  ResnetBlock2DOptions r = resnet_options(o, groups_of(o.out_channels));
  r.resample = resample;
  r.shortcut = r.fir = o.kind.skip;
  return r;
}

// What a level is made of that changes the size, one of two types.
Tensor resized(const nn::Module& by, const Tensor& x, const Tensor& temb) {
  if (auto* resnet = dynamic_cast<const ResnetBlock2D*>(&by)) return (*resnet)(x, temb);
  if (auto* down = dynamic_cast<const Downsample2D*>(&by)) return (*down)(x);
  return dynamic_cast<const Upsample2D&>(by)(x);
}

}  // namespace

PictureDownLevel::PictureDownLevel(const PictureLevelOptions& o) : kind(o.kind) {
  for (int64_t i = 0; i < o.num_layers; ++i) {
    const int64_t in = i == 0 ? o.in_channels : o.out_channels;
    resnets.emplace_back(in, o.out_channels, resnet_options(o, groups_of(in)));
    if (kind.attention) attentions.emplace_back(o.out_channels, attention_options(o));
  }
  if (!o.resize) return;
  if (kind.skip) {
    resnet_down.emplace(o.out_channels, o.out_channels, resizing_options(o, Resample::Down));
    skip_conv.emplace(kPictureChannels, o.out_channels, 1);
  } else if (kind.by_resnet) {
    downsamplers.emplace().emplace_back<ResnetBlock2D>(o.out_channels, o.out_channels,
                                                       resizing_options(o, Resample::Down));
  } else {
    downsamplers.emplace().emplace_back<Downsample2D>(o.out_channels, o.out_channels, o.downsample_padding);
  }
}

Tensors PictureDownLevel::forward(const Tensor& hidden_states, const Tensor& temb, const Tensor& picture) const {
  Tensors out;
  Tensor h = hidden_states;
  for (size_t i = 0; i < resnets.size(); ++i) {
    h = resnet(i, h, temb);
    if (!attentions.empty()) h = attentions[i](h);
    out.push_back(h);
  }
  if (downsamplers)
    for (auto& downsampler : *downsamplers) out.push_back(h = resized(downsampler, h, temb));
  if (!kind.skip) return out;
  Tensor beside = picture;
  if (resnet_down) {
    beside = fir_downsample_2d(picture);
    out.push_back((*skip_conv)(beside) + (*resnet_down)(h, temb));
  }
  out.push_back(beside);
  return out;
}

PictureUpLevel::PictureUpLevel(const PictureLevelOptions& o) : kind(o.kind) {
  for (int64_t i = 0; i < o.num_layers; ++i) {
    const int64_t in = i == 0 ? o.in_channels : o.out_channels,
                  skip = i + 1 == o.num_layers ? o.skip_channels : o.out_channels;
    // diffusers' slip of a bracket, which its published weights have
    const int64_t groups_in = kind.attention ? std::min<int64_t>(in + skip / 4, 32) : groups_of(in + skip);
    resnets.emplace_back(in + skip, o.out_channels, resnet_options(o, groups_in));
    if (kind.attention && !kind.skip) attentions.emplace_back(o.out_channels, attention_options(o));
  }
  if (kind.attention && kind.skip) attentions.emplace_back(o.out_channels, attention_options(o));
  if (!o.resize) return;
  if (kind.skip) {
    resnet_up.emplace(o.out_channels, o.out_channels, resizing_options(o, Resample::Up));
    skip_conv.emplace(o.out_channels, kPictureChannels, 3, nn::ConvOptions{.padding = 1});
    skip_norm.emplace(groups_of(o.out_channels), o.out_channels, o.eps);
  } else if (kind.by_resnet) {
    upsamplers.emplace().emplace_back<ResnetBlock2D>(o.out_channels, o.out_channels, resizing_options(o, Resample::Up));
  } else {
    upsamplers.emplace().emplace_back<Upsample2D>(o.out_channels, o.out_channels);
  }
}

Tensors PictureUpLevel::forward(const Tensor& hidden_states, const Tensors& skips, const Tensor& temb,
                                const Tensor& picture) const {
  SF_CHECK(skips.size() == resnets.size(), type(), ": needs ", resnets.size(), " skips, got ", skips.size());
  Tensor h = hidden_states;
  for (size_t i = 0; i < resnets.size(); ++i) {
    h = joined(i, h, skips[skips.size() - 1 - i], temb);
    if (!attentions.empty() && (!kind.skip || i + 1 == resnets.size())) h = attentions[kind.skip ? 0 : i](h);
  }
  if (upsamplers)
    for (auto& upsampler : *upsamplers) h = resized(upsampler, h, temb);
  if (!kind.skip) return {h};
  Tensor beside = picture ? fir_upsample_2d(picture) : picture;
  if (resnet_up) {
    const Tensor seen = norm_silu_conv(*skip_norm, *skip_conv, h);
    beside = beside ? beside + seen : seen;
    h = (*resnet_up)(h, temb);
  }
  return beside ? Tensors{h, beside} : Tensors{h};
}

PictureMidLevel::PictureMidLevel(const PictureMidOptions& o) {
  const ResnetBlock2DOptions options{.temb_channels = o.temb_channels,
                                     .groups = o.groups.value_or(groups_of(o.channels)),
                                     .eps = o.eps,
                                     .dropout = o.dropout,
                                     .output_scale_factor = o.scale_factor,
                                     .scale_shift = o.scale_shift};
  resnets.emplace_back(o.channels, o.channels, options);
  if (o.attention)
    attentions.emplace_back(
        o.channels, attention_options(o.channels, o.attention_head_dim, o.attention_groups, o.eps, o.scale_factor));
  resnets.emplace_back(o.channels, o.channels, options);
}

Tensor PictureMidLevel::forward(const Tensor& hidden_states, const Tensor& temb) const {
  Tensor h = resnet(0, hidden_states, temb);
  if (!attentions.empty()) h = attentions[0](h);
  return resnet(1, h, temb);
}

}  // namespace sf::models
