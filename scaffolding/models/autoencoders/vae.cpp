#include "scaffolding/models/autoencoders/vae.h"

#include <cmath>
#include <numbers>

#include "scaffolding/core/error.h"
#include "scaffolding/ops/ops.h"

namespace sf::models {

// ---- the distribution

DiagonalGaussianDistribution::DiagonalGaussianDistribution(const Tensor& moments, bool is_deterministic)
    : parameters(moments), deterministic(is_deterministic) {
  const char* who = "DiagonalGaussianDistribution";
  check_defined(who, "parameters", moments);
  check_floating(who, "parameters", moments);
  SF_CHECK(moments.ndim() >= 2 && moments.size(1) > 0 && moments.size(1) % 2 == 0, who,
           ": parameters must be [B, 2 C, ...] with means and logarithms of variances, got ", moments.shape());
  Tensors halves = chunk(moments, 2, 1);
  mean = halves[0];
  logvar = clamp(halves[1], -30, 20);
  std = deterministic ? zeros_like(mean) : exp(logvar * 0.5);
  var = deterministic ? std : exp(logvar);
}

namespace {
// Numbers are drawn where the generator is.
Tensor noise(const Shape& shape, const Generator& generator, const Tensor& like) {
  return randn(shape, generator, like.dtype(), generator ? generator->device : like.device()).to(like.device());
}
}  // namespace

Tensor DiagonalGaussianDistribution::sample(const Generator& generator) const {
  return mean + std * noise(mean.shape(), generator, parameters);
}

Tensor DiagonalGaussianDistribution::sample(const std::vector<Generator>& generators) const {
  SF_CHECK(int64_t(generators.size()) == mean.size(0),
           "DiagonalGaussianDistribution.sample: a list of generators must have one for each of the batch, got ",
           generators.size(), " for ", mean.shape());
  Shape one = mean.shape();
  one[0] = 1;
  Tensors parts;
  for (auto& g : generators) parts.push_back(noise(one, g, parameters));
  return mean + std * cat(parts);
}

Tensor DiagonalGaussianDistribution::zero() const { return zeros({1}, kFloat32, mean.device()); }

Tensor DiagonalGaussianDistribution::kl() const {
  if (deterministic) return zero();
  return (mean * mean + var - 1 - logvar).sum({1, 2, 3}) * 0.5;
}

Tensor DiagonalGaussianDistribution::kl(const DiagonalGaussianDistribution& other) const {
  if (deterministic) return zero();
  Tensor difference = mean - other.mean;
  return (difference * difference / other.var + var / other.var - 1 - logvar + other.logvar).sum({1, 2, 3}) * 0.5;
}

Tensor DiagonalGaussianDistribution::nll(const Tensor& sample, const Shape& dims) const {
  if (deterministic) return zero();
  Tensor difference = sample - mean;
  return (logvar + std::log(2 * std::numbers::pi) + difference * difference / var).sum(dims) * 0.5;
}

// ---- blocks

namespace {

constexpr double kEps = 1e-6;

ResnetBlock2DOptions resnet_options(int64_t groups) { return {.groups = groups, .eps = kEps}; }

// One head over all channels, beside a shortcut.
AttentionOptions attention_options(int64_t channels, int64_t groups) {
  return {.heads = 1,
          .dim_head = channels,
          .bias = true,
          .norm_num_groups = groups,
          .eps = kEps,
          .residual_connection = true};
}

// Pictures pass from block to block; what a block made is dropped as soon as the next one has read it.
template <class Block> void fill(Block& block, int64_t in_channels, int64_t out_channels, const VaeBlockOptions& o) {
  if (o.attention) block.attentions.emplace();
  for (int64_t i = 0; i < o.num_layers; ++i) {
    block.resnets.emplace_back(i == 0 ? in_channels : out_channels, out_channels, resnet_options(o.groups));
    if (o.attention) block.attentions->emplace_back(out_channels, attention_options(out_channels, o.groups));
  }
}

template <class Block, class Resizers>
Tensor through(const Block& block, const std::optional<Resizers>& resizers, Tensor x) {
  for (size_t i = 0; i < block.resnets.size(); ++i) {
    x = block.resnets[i](std::move(x));
    if (block.attentions) x = (*block.attentions)[i](x);
  }
  if (resizers) x = (*resizers)[0](x);
  return x;
}

// The kernels are at their best between channels-last pictures; callers get back the layout that they came with.
Tensor to_callers_layout(const Tensor& y, const Tensor& x) { return x.is_contiguous() ? y.contiguous() : y; }

}  // namespace

DownEncoderBlock2D::DownEncoderBlock2D(int64_t in_channels, int64_t out_channels, const VaeBlockOptions& o) {
  fill(*this, in_channels, out_channels, o);
  if (o.resize) downsamplers.emplace().emplace_back(out_channels, out_channels, 0);
}

Tensor DownEncoderBlock2D::forward(Tensor x) const {
  if (!gradient_checkpointing) return through(*this, downsamplers, std::move(x));
  return run([this](const Tensors& in) -> Tensors { return {through(*this, downsamplers, in[0])}; }, {x})[0];
}

UpDecoderBlock2D::UpDecoderBlock2D(int64_t in_channels, int64_t out_channels, const VaeBlockOptions& o) {
  fill(*this, in_channels, out_channels, o);
  if (o.resize) upsamplers.emplace().emplace_back(out_channels, out_channels);
}

Tensor UpDecoderBlock2D::forward(Tensor x) const {
  if (!gradient_checkpointing) return through(*this, upsamplers, std::move(x));
  return run([this](const Tensors& in) -> Tensors { return {through(*this, upsamplers, in[0])}; }, {x})[0];
}

UNetMidBlock2D::UNetMidBlock2D(int64_t channels, int64_t groups, bool add_attention) {
  resnets.emplace_back(channels, channels, resnet_options(groups));
  if (add_attention) attentions.emplace_back(channels, attention_options(channels, groups));
  resnets.emplace_back(channels, channels, resnet_options(groups));
}

Tensor UNetMidBlock2D::forward(const Tensor& hidden_states) const {
  auto forward = [this](const Tensors& in) -> Tensors {
    Tensor x = resnets[0](in[0]);
    if (!attentions.empty()) x = attentions[0](x);
    return {resnets[1](x)};
  };
  return run(forward, {hidden_states})[0];
}

// ---- the halves

Encoder::Encoder(const VaeOptions& o)
    : conv_in(o.in_channels, o.block_out_channels.front(), 3, {.padding = 1}),
      mid_block(o.block_out_channels.back(), o.norm_num_groups, o.mid_block_add_attention),
      conv_norm_out(o.norm_num_groups, o.block_out_channels.back(), kEps),
      conv_out(o.block_out_channels.back(), o.out_channels, 3, {.padding = 1}) {
  int64_t channels = o.block_out_channels.front();
  for (size_t i = 0; i < o.block_types.size(); ++i) {
    bool last = i + 1 == o.block_types.size(), attention = o.block_types[i] == "AttnDownEncoderBlock2D";
    down_blocks.emplace_back(channels, o.block_out_channels[i],
                             VaeBlockOptions{o.layers_per_block, o.norm_num_groups, !last, attention});
    channels = o.block_out_channels[i];
  }
}

Tensor Encoder::forward(const Tensor& sample) const {
  Tensor x = conv_in(sample.contiguous(MemoryFormat::ChannelsLast));
  for (auto& block : down_blocks) x = block(std::move(x));
  x = mid_block(x);
  return to_callers_layout(norm_silu_conv(conv_norm_out, conv_out, x), sample);
}

Decoder::Decoder(const VaeOptions& o)
    : conv_in(o.in_channels, o.block_out_channels.back(), 3, {.padding = 1}),
      mid_block(o.block_out_channels.back(), o.norm_num_groups, o.mid_block_add_attention),
      conv_norm_out(o.norm_num_groups, o.block_out_channels.front(), kEps),
      conv_out(o.block_out_channels.front(), o.out_channels, 3, {.padding = 1}) {
  int64_t channels = o.block_out_channels.back();
  for (size_t i = 0; i < o.block_types.size(); ++i) {
    bool last = i + 1 == o.block_types.size(), attention = o.block_types[i] == "AttnUpDecoderBlock2D";
    int64_t wanted = o.block_out_channels[o.block_types.size() - 1 - i];
    up_blocks.emplace_back(channels, wanted,
                           VaeBlockOptions{o.layers_per_block + 1, o.norm_num_groups, !last, attention});
    channels = wanted;
  }
}

Tensor Decoder::forward(const Tensor& sample) const {
  Tensor x = conv_in(sample.contiguous(MemoryFormat::ChannelsLast));
  x = mid_block(x);
  for (auto& block : up_blocks) x = block(std::move(x));
  return to_callers_layout(norm_silu_conv(conv_norm_out, conv_out, x), sample);
}

}  // namespace sf::models
