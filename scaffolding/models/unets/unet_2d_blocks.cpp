#include "scaffolding/models/unets/unet_2d_blocks.h"

#include "scaffolding/core/error.h"
#include "scaffolding/nn/streaming/residence.h"
#include "scaffolding/ops/ops.h"

namespace sf::models {

ResnetBlock2DOptions UNetBlockOptions::resnet() const {
  return {.temb_channels = temb_channels,
          .groups = groups,
          .eps = eps,
          .dropout = dropout,
          .output_scale_factor = output_scale_factor,
          .scale_shift = scale_shift};
}

Transformer2DConfig UNetBlockOptions::transformer(size_t layer) const {
  Transformer2DConfig c;
  c.num_attention_heads = num_attention_heads;
  c.attention_head_dim = out_channels / num_attention_heads;
  c.in_channels = out_channels;
  c.num_layers = transformer_layers.at(layer);
  c.norm_num_groups = groups;
  c.cross_attention_dim = cross_attention_dim;
  c.use_linear_projection = use_linear_projection;
  c.only_cross_attention = only_cross_attention;
  c.upcast_attention = upcast_attention;
  return c;
}

Tensor ResnetLevel::resnet(size_t i, const Tensor& x, const Tensor& temb) const {
  return run([this, i, temb](const Tensors& in) -> Tensors { return {resnets[i](in[0], temb)}; }, {x})[0];
}

Tensor ResnetLevel::joined(size_t i, const Tensor& h, const Tensor& skip, const Tensor& temb) const {
  const nn::WeightsHere here(resnets[i]);  // reads_apart looks at them
  return resnets[i].reads_apart(h, skip) ? resnets[i].with_skip(h, skip, temb) : resnet(i, cat({h, skip}, 1), temb);
}

Tensor UNetBlock::attend(size_t i, const Tensor& x, const Tensor& context, const Tensor& mask,
                         const Tensor& context_mask) const {
  return attentions.empty() ? x : attentions[i](x, context, Tensor(), mask, context_mask);
}

DownBlock2D::DownBlock2D(const UNetBlockOptions& o) : UNetDownBlock(o, false) {}
CrossAttnDownBlock2D::CrossAttnDownBlock2D(const UNetBlockOptions& o) : UNetDownBlock(o, true) {}
UpBlock2D::UpBlock2D(const UNetBlockOptions& o) : UNetUpBlock(o, false) {}
CrossAttnUpBlock2D::CrossAttnUpBlock2D(const UNetBlockOptions& o) : UNetUpBlock(o, true) {}

UNetDownBlock::UNetDownBlock(const UNetBlockOptions& o, bool attention) {
  for (int64_t i = 0; i < o.num_layers; ++i) {
    resnets.emplace_back(i == 0 ? o.in_channels : o.out_channels, o.out_channels, o.resnet());
    if (attention) attentions.emplace_back(o.transformer(size_t(i)));
  }
  if (o.resample) downsamplers.emplace().emplace_back(o.out_channels, o.out_channels, o.downsample_padding);
}

Tensors UNetDownBlock::forward(const Tensor& hidden_states, const Tensor& temb, const Tensor& context,
                               const Tensor& mask, const Tensor& context_mask,
                               const Tensor& additional_residual) const {
  Tensors out;
  Tensor h = hidden_states;
  for (size_t i = 0; i < resnets.size(); ++i) {
    h = attend(i, resnet(i, h, temb), context, mask, context_mask);
    if (additional_residual && i + 1 == resnets.size()) h = h + additional_residual;
    out.push_back(h);
  }
  if (downsamplers)
    for (auto& downsampler : *downsamplers) out.push_back(h = downsampler(h));
  return out;
}

UNetUpBlock::UNetUpBlock(const UNetBlockOptions& o, bool attention) {
  for (int64_t i = 0; i < o.num_layers; ++i) {
    const int64_t skip = i + 1 == o.num_layers ? o.skip_channels : o.out_channels;
    resnets.emplace_back((i == 0 ? o.in_channels : o.out_channels) + skip, o.out_channels, o.resnet());
    if (attention) attentions.emplace_back(o.transformer(size_t(i)));
  }
  if (o.resample) upsamplers.emplace().emplace_back(o.out_channels, o.out_channels);
}

Tensor UNetUpBlock::forward(const Tensor& hidden_states, const Tensors& skips, const Tensor& temb,
                            const Tensor& context, const Shape& upsample_size, const Tensor& mask,
                            const Tensor& context_mask) const {
  SF_CHECK(skips.size() == resnets.size(), type(), ": needs ", resnets.size(), " skips, got ", skips.size());
  Tensor h = hidden_states;
  for (size_t i = 0; i < resnets.size(); ++i) {
    Tensor skip = skips[skips.size() - 1 - i];
    if (free_u) free_u->apply(h, skip);
    h = joined(i, h, skip, temb);
    h = attend(i, h, context, mask, context_mask);
  }
  if (upsamplers)
    for (auto& upsampler : *upsamplers)
      h = upsampler.resize(h, upsample_size.empty() ? std::nullopt : std::optional(upsample_size));
  return h;
}

UNetMidBlock2DCrossAttn::UNetMidBlock2DCrossAttn(const UNetBlockOptions& o) {
  resnets.emplace_back(o.in_channels, o.out_channels, o.resnet());
  for (int64_t i = 0; i < o.num_layers; ++i) {
    attentions.emplace_back(o.transformer(size_t(i)));
    resnets.emplace_back(o.out_channels, o.out_channels, o.resnet());
  }
}

Tensor UNetMidBlock2DCrossAttn::forward(const Tensor& hidden_states, const Tensor& temb, const Tensor& context,
                                        const Tensor& mask, const Tensor& context_mask) const {
  Tensor h = resnet(0, hidden_states, temb);
  for (size_t i = 0; i < attentions.size(); ++i) h = resnet(i + 1, attend(i, h, context, mask, context_mask), temb);
  return h;
}

}  // namespace sf::models
