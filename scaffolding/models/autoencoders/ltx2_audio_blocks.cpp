#include "scaffolding/models/autoencoders/ltx2_audio_blocks.h"

#include <algorithm>

#include "scaffolding/ops/ops.h"

namespace sf::models {

namespace {

constexpr double kNormEps = 1e-6;
constexpr int64_t kNormGroups = 32;

using Axis = LTX2CausalAxis;

bool is_width(Axis axis) { return axis == Axis::Width || axis == Axis::WidthCompatible; }

// Of a kernel that sees `reach` places besides its own along either axis.
Shape causal_padding(int64_t reach, Axis axis) {
  const int64_t half = reach / 2;
  if (is_width(axis)) return {reach, 0, half, reach - half};
  if (axis == Axis::Height) return {half, reach - half, reach, 0};
  return {half, reach - half, half, reach - half};
}

// The last row and column have a neighbour too; along the causal axis the zeros are before the first one.
Shape halving_padding(Axis axis) {
  switch (axis) {
    case Axis::Width: return {2, 0, 0, 1};
    case Axis::WidthCompatible: return {1, 0, 0, 1};
    case Axis::Height: return {0, 1, 2, 0};
    default: return {0, 1, 0, 1};
  }
}

bool has_attention(const LTX2AudioHalfOptions& o, int64_t resolution) {
  return std::find(o.attn_resolutions.begin(), o.attn_resolutions.end(), resolution) != o.attn_resolutions.end();
}

int64_t channels_of(const LTX2AudioHalfOptions& o, size_t level) { return o.base_channels * o.ch_mult[level]; }

// Spectrograms [B, C, H, W] as rows of channels [B, H, W, C], and back: views where they are channels-last.
Tensor bins_as_rows(const Tensor& x) { return x.permute({0, 2, 3, 1}); }
Tensor bins_from_rows(const Tensor& x) { return x.permute({0, 3, 1, 2}); }

}  // namespace

LTX2AudioCausalConv2d::LTX2AudioCausalConv2d(int64_t in_channels, int64_t out_channels, int64_t kernel_size, Axis axis)
    : conv(in_channels, out_channels, kernel_size), padding(causal_padding(kernel_size - 1, axis)) {}

Tensor LTX2AudioCausalConv2d::forward(const Tensor& x) const {
  return conv(conv.kernel_size[0] == 1 ? x : pad(x, padding));
}

LTX2AudioNorm::LTX2AudioNorm(int64_t c, bool group) : channels(c) {
  if (!group) return;
  weight = nn::parameter(ones({channels}));
  bias = nn::parameter(zeros({channels}));
}

Tensor LTX2AudioNorm::forward(const Tensor& x) const {
  if (weight) return group_norm(x, kNormGroups, weight, bias, kNormEps);
  return bins_from_rows(rms_norm(bins_as_rows(x), {channels}, {}, kNormEps));
}

LTX2AudioResnetBlock::LTX2AudioResnetBlock(int64_t in_channels, int64_t out_channels, const LTX2AudioBlockOptions& o)
    : norm1(in_channels, o.group_norm),
      conv1(in_channels, out_channels, 3, o.axis),
      norm2(out_channels, o.group_norm),
      dropout(o.dropout),
      conv2(out_channels, out_channels, 3, o.axis) {
  if (in_channels != out_channels) nin_shortcut.emplace(in_channels, out_channels, 1, o.axis);
}

Tensor LTX2AudioResnetBlock::forward(const Tensor& x) const {
  const Tensor h = conv1(silu(norm1(x)));
  const Tensor y = conv2(dropout(silu(norm2(h))));
  return (nin_shortcut ? (*nin_shortcut)(x) : x) + y;
}

LTX2AudioAttnBlock::LTX2AudioAttnBlock(int64_t channels, bool group_norm)
    : norm(channels, group_norm),
      to_q(channels, channels, 1),
      to_k(channels, channels, 1),
      to_v(channels, channels, 1),
      proj_out(channels, channels, 1) {}

Tensor LTX2AudioAttnBlock::forward(const Tensor& x) const {
  const Tensor h = norm(x);
  auto tokens = [](const Tensor& t) { return bins_as_rows(t).flatten(1, 2).unsqueeze(1); };  // [B, 1, H W, C]
  const Tensor y = scaled_dot_product_attention(tokens(to_q(h)), tokens(to_k(h)), tokens(to_v(h)));
  return x + proj_out(bins_from_rows(unflatten(y.squeeze(1), 1, {x.size(2), x.size(3)})));
}

LTX2AudioDownsample::LTX2AudioDownsample(int64_t channels, Axis axis)
    : conv(channels, channels, 3, {.stride = 2}), padding(halving_padding(axis)) {}

Tensor LTX2AudioDownsample::forward(const Tensor& x) const { return conv(pad(x, padding)); }

LTX2AudioUpsample::LTX2AudioUpsample(int64_t channels, Axis a) : conv(channels, channels, 3, a), axis(a) {}

Tensor LTX2AudioUpsample::forward(const Tensor& x) const {
  const Tensor y = conv(interpolate(x, {}, Floats{2, 2}));
  if (axis == Axis::Height) return y.narrow(2, 1, y.size(2) - 1);
  if (axis == Axis::Width) return y.narrow(3, 1, y.size(3) - 1);
  return y;
}

LTX2AudioStage::LTX2AudioStage(int64_t in_channels, int64_t out_channels, int64_t num_blocks, bool attention,
                               const LTX2AudioBlockOptions& o) {
  for (int64_t i = 0; i < num_blocks; ++i) {
    block.emplace_back(i == 0 ? in_channels : out_channels, out_channels, o);
    if (attention) attn.emplace_back(out_channels, o.group_norm);
  }
}

Tensor LTX2AudioStage::forward(Tensor x) const {
  for (size_t i = 0; i < block.size(); ++i) {
    x = block[i](x);
    if (!attn.empty()) x = attn[i](x);
  }
  if (downsample) return (*downsample)(x);
  return upsample ? (*upsample)(x) : x;
}

LTX2AudioMid::LTX2AudioMid(int64_t channels, bool attention, const LTX2AudioBlockOptions& o)
    : block_1(channels, channels, o), block_2(channels, channels, o) {
  if (attention) attn_1.emplace(channels, o.group_norm);
}

Tensor LTX2AudioMid::forward(const Tensor& x) const {
  const Tensor h = block_1(x);
  return block_2(attn_1 ? (*attn_1)(h) : h);
}

LTX2AudioEncoder::LTX2AudioEncoder(const LTX2AudioHalfOptions& o)
    : conv_in(o.in_channels, o.base_channels, 3, o.block.axis),
      mid(channels_of(o, o.ch_mult.size() - 1), o.mid_block_add_attention, o.block),
      norm_out(channels_of(o, o.ch_mult.size() - 1), o.block.group_norm),
      conv_out(channels_of(o, o.ch_mult.size() - 1), o.out_channels, 3, o.block.axis) {
  int64_t channels = o.base_channels, resolution = o.resolution;
  for (size_t level = 0; level < o.ch_mult.size(); ++level) {
    auto& stage =
        down.emplace_back(channels, channels_of(o, level), o.num_res_blocks, has_attention(o, resolution), o.block);
    channels = channels_of(o, level);
    if (level + 1 == o.ch_mult.size()) break;
    stage.downsample.emplace(channels, o.block.axis);
    resolution /= 2;
  }
}

Tensor LTX2AudioEncoder::forward(const Tensor& x) const {
  Tensor h = conv_in(to_channels_last(x));
  for (auto& stage : down) h = stage(std::move(h));
  return contiguous(conv_out(silu(norm_out(mid(h)))));
}

LTX2AudioDecoder::LTX2AudioDecoder(const LTX2AudioHalfOptions& o)
    : conv_in(o.in_channels, channels_of(o, o.ch_mult.size() - 1), 3, o.block.axis),
      mid(channels_of(o, o.ch_mult.size() - 1), o.mid_block_add_attention, o.block),
      norm_out(channels_of(o, 0), o.block.group_norm),
      conv_out(channels_of(o, 0), o.out_channels, 3, o.block.axis) {
  const size_t levels = o.ch_mult.size();
  for (size_t level = 0; level < levels; ++level) {
    const int64_t before = channels_of(o, std::min(level + 1, levels - 1));
    const int64_t resolution = (o.resolution >> (levels - 1)) << (levels - 1 - level);
    auto& stage =
        up.emplace_back(before, channels_of(o, level), o.num_res_blocks + 1, has_attention(o, resolution), o.block);
    if (level > 0) stage.upsample.emplace(channels_of(o, level), o.block.axis);
  }
}

Tensor LTX2AudioDecoder::forward(const Tensor& z) const {
  Tensor h = mid(conv_in(to_channels_last(z)));
  for (size_t level = up.size(); level-- > 0;) h = up[level](std::move(h));
  return conv_out(silu(norm_out(h)));
}

}  // namespace sf::models
