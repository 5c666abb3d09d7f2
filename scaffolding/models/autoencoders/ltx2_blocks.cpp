#include "scaffolding/models/autoencoders/ltx2_blocks.h"

#include <cmath>

#include "scaffolding/core/error.h"
#include "scaffolding/models/parts/norm.h"
#include "scaffolding/models/parts/projections.h"
#include "scaffolding/models/parts/video_conv.h"
#include "scaffolding/ops/ops.h"

namespace sf::models {

namespace {

constexpr int64_t kTimestepFeatures = 256;

// Videos [B, C, T, H, W] as rows of channels [B, T, H, W, C], views where they are channels-last, and back.
Tensor rows_of(const Tensor& video) { return video.permute({0, 2, 3, 4, 1}); }
Tensor video_of(const Tensor& rows) { return rows.permute({0, 4, 1, 2, 3}); }

// Parameters [n, C] that start as one over the root of the channels.
Tensor modulation_table(int64_t n, int64_t channels) {
  return nn::parameter(randn({n, channels}) / std::sqrt(double(channels)));
}

FramesAround frames_around(bool causal) {
  return causal ? FramesAround{.before = 2} : FramesAround{.before = 1, .behind = 1};
}

// conv(silu(norm(x) * (1 + scale) + shift)) + residual; scale and shift [B, C], or absent.
Tensor after_norm(const PerChannelRMSNorm& norm, const LTX2VideoCausalConv3d& conv, Tensor x, bool causal,
                  const Tensor& scale, const Tensor& shift, const Tensor& residual = {}) {
  if (is_plain(norm) && is_plain(conv))
    return norm_silu_conv({norm.eps, scale, shift}, conv.conv, std::move(x), frames_around(causal), residual);
  Tensor rows = rows_of(norm(x));
  if (scale) rows = modulate(rows, scale, shift);
  const Tensor y = conv(video_of(silu(rows)), causal);
  return residual ? y + residual : y;
}

// Of a picture, the same for all frames and samples.
Tensor plus_noise(const Tensor& x, const Tensor& per_channel_scale) {
  if (!per_channel_scale) return x;
  const Tensor noise = randn({x.size(3), x.size(4)}, {}, x.dtype(), x.device());
  return x + (noise.unsqueeze(0) * per_channel_scale).unsqueeze(1);
}

template <class Block> void fill_resnets(Block& block, const LTX2VideoBlockOptions& o, int64_t channels) {
  for (int64_t i = 0; i < o.num_layers; ++i) block.resnets.emplace_back(channels, channels, o);
}

Tensor embedded(const std::optional<LTX2TimestepEmbedder>& embedder, const Tensor& timesteps, const Tensor& x) {
  if (!embedder) return {};
  return (*embedder)(timesteps, x.dtype()).expand({x.size(0), -1});
}

// compute(video, timesteps), checkpointed where that is on; timesteps may be absent.
template <class F, class Run> Tensor with_checkpoint(bool on, const Run& run, Tensor x, const Tensor& t, F compute) {
  if (!on) return compute(std::move(x), t);
  const bool told = bool(t);
  auto of_list = [compute, told](const Tensors& in) -> Tensors { return {compute(in[0], told ? in[1] : Tensor())}; };
  return run(of_list, told ? Tensors{std::move(x), t} : Tensors{std::move(x)})[0];
}

}  // namespace

Tensor blocks_to_channels(const Tensor& rows, const Shape& stride) {
  const Tensor blocks =
      unflatten(unflatten(unflatten(rows, 3, {-1, stride[2]}), 2, {-1, stride[1]}), 1, {-1, stride[0]});
  return blocks.permute({0, 1, 3, 5, 7, 2, 4, 6}).flatten(4, 7);
}

Tensor channels_to_blocks(const Tensor& rows, const Shape& stride) {
  const Tensor blocks = unflatten(rows, 4, {-1, stride[0], stride[1], stride[2]});
  return blocks.permute({0, 1, 5, 2, 6, 3, 7, 4}).flatten(5, 6).flatten(3, 4).flatten(1, 2);
}

// ---- convolutions and norms

Tensor PerChannelRMSNorm::forward(const Tensor& x) const {
  return video_of(rms_norm(rows_of(x), {x.size(1)}, {}, eps));
}

LTX2VideoCausalConv3d::LTX2VideoCausalConv3d(int64_t in_channels, int64_t out_channels, const std::string& padding_mode,
                                             int64_t stride)
    : conv(in_channels, out_channels, 3, {.stride = stride, .padding = Shape{0, 1, 1}, .padding_mode = padding_mode}) {}

Tensor LTX2VideoCausalConv3d::forward(Tensor x, bool causal) const {
  return conv_with_frames(conv, std::move(x), frames_around(causal));
}

LTX2TimestepEmbedder::LTX2TimestepEmbedder(int64_t embedding_dim)
    : timestep_embedder(kTimestepFeatures, embedding_dim) {}

Tensor LTX2TimestepEmbedder::forward(const Tensor& timesteps, DType dtype) const {
  return timestep_embedder(
      timestep_embedding(timesteps.flatten(), kTimestepFeatures, {.flip_sin_to_cos = true, .downscale_freq_shift = 0})
          .to(dtype));
}

// ---- residual blocks

LTX2VideoResnetBlock3d::LTX2VideoResnetBlock3d(int64_t in_channels, int64_t out_channels,
                                               const LTX2VideoBlockOptions& o)
    : conv1(in_channels, out_channels, o.padding_mode), conv2(out_channels, out_channels, o.padding_mode) {
  if (in_channels != out_channels) {
    norm3.emplace(Shape{in_channels}, o.eps);
    conv_shortcut.emplace(in_channels, out_channels, 1);
  }
  if (o.inject_noise) {
    per_channel_scale1 = nn::parameter(zeros({in_channels, 1, 1}));
    per_channel_scale2 = nn::parameter(zeros({in_channels, 1, 1}));
  }
  if (o.timestep_conditioning) scale_shift_table = modulation_table(4, in_channels);
}

Tensor LTX2VideoResnetBlock3d::forward(Tensor x, const Tensor& temb, bool causal) const {
  Tensors told(4);
  if (scale_shift_table) told = rows_with_table(scale_shift_table, temb.reshape({temb.size(0), 4, -1}));
  const Tensor &shift1 = told[0], &scale1 = told[1], &shift2 = told[2], &scale2 = told[3];
  Tensor h = plus_noise(after_norm(norm1, conv1, x, causal, scale1, shift1), per_channel_scale1);
  if (norm3) x = video_of((*norm3)(rows_of(x)));
  if (conv_shortcut) x = (*conv_shortcut)(x);
  if (!per_channel_scale2) return after_norm(norm2, conv2, std::move(h), causal, scale2, shift2, x);
  return plus_noise(after_norm(norm2, conv2, std::move(h), causal, scale2, shift2), per_channel_scale2) + x;
}

LTX2VideoDownsampler3d::LTX2VideoDownsampler3d(const LTX2VideoBlockOptions& o)
    : stride(o.stride),
      group_size(o.in_channels * numel(o.stride) / o.out_channels),
      conv(o.in_channels, o.out_channels / numel(o.stride), o.padding_mode) {}

Tensor LTX2VideoDownsampler3d::forward(Tensor x, bool causal) const {
  if (stride[0] > 1) x = video_of(cat({rows_of(x).narrow(1, 0, stride[0] - 1), rows_of(x)}, 1));
  const Tensor blocks = blocks_to_channels(rows_of(x), stride);
  const Tensor means = group_size == 1 ? blocks : unflatten(blocks, 4, {-1, group_size}).mean({5});
  return video_of(blocks_to_channels(rows_of(conv(std::move(x), causal)), stride) + means);
}

LTX2VideoUpsampler3d::LTX2VideoUpsampler3d(const LTX2VideoBlockOptions& o)
    : stride(o.stride),
      residual(o.residual),
      upscale_factor(o.upscale_factor),
      conv(o.out_channels * o.upscale_factor, o.out_channels * numel(o.stride), o.padding_mode) {}

Tensor LTX2VideoUpsampler3d::forward(Tensor x, bool causal) const {
  // The first frame stands for itself: what comes before it is left out.
  auto enlarged = [this](const Tensor& rows) {
    const Tensor all = channels_to_blocks(rows, stride);
    return all.narrow(1, stride[0] - 1, all.size(1) - stride[0] + 1);
  };
  Tensor beside;
  if (residual) beside = enlarged(rows_of(x)).unsqueeze(4);
  Tensor rows = enlarged(rows_of(conv(std::move(x), causal)));
  if (!residual) return video_of(rows);
  // again and again through all channels
  return video_of((unflatten(rows, 4, {-1, beside.size(5)}) + beside).flatten(4, 5));
}

// ---- blocks

LTX2VideoDownBlock3D::LTX2VideoDownBlock3D(const LTX2VideoBlockOptions& o) {
  fill_resnets(*this, o, o.in_channels);
  if (o.stride.size() == 0) return;
  if (o.by_convolution) strided.emplace().emplace_back(o.in_channels, o.in_channels, o.padding_mode, o.stride[0]);
  else unshuffling.emplace().emplace_back(o);
}

void LTX2VideoDownBlock3D::visit(nn::Visitor& v) {
  if (strided) visit_members(v, "resnets, downsamplers", resnets, strided);
  else visit_members(v, "resnets, downsamplers", resnets, unshuffling);
}

Tensor LTX2VideoDownBlock3D::forward(Tensor hidden_states, bool causal) const {
  auto compute = [this, causal](Tensor x, const Tensor& none) {
    for (auto& resnet : resnets) x = resnet(std::move(x), none, causal);
    if (unshuffling) return (*unshuffling)[0](std::move(x), causal);
    return strided ? (*strided)[0](std::move(x), causal) : x;
  };
  return with_checkpoint(
      gradient_checkpointing, [this](auto& f, const Tensors& in) { return run(f, in); }, std::move(hidden_states), {},
      compute);
}

LTX2VideoMidBlock3d::LTX2VideoMidBlock3d(const LTX2VideoBlockOptions& o) {
  if (o.timestep_conditioning) time_embedder.emplace(4 * o.in_channels);
  fill_resnets(*this, o, o.in_channels);
}

Tensor LTX2VideoMidBlock3d::forward(Tensor hidden_states, const Tensor& timesteps, bool causal) const {
  auto compute = [this, causal](Tensor x, const Tensor& t) {
    const Tensor temb = embedded(time_embedder, t, x);
    for (auto& resnet : resnets) x = resnet(std::move(x), temb, causal);
    return x;
  };
  return with_checkpoint(
      gradient_checkpointing, [this](auto& f, const Tensors& in) { return run(f, in); }, std::move(hidden_states),
      timesteps, compute);
}

LTX2VideoUpBlock3d::LTX2VideoUpBlock3d(const LTX2VideoBlockOptions& o) {
  if (o.timestep_conditioning) time_embedder.emplace(4 * o.in_channels);
  if (o.in_channels != o.out_channels) conv_in.emplace(o.in_channels, o.out_channels, o);
  if (o.stride.size() > 0) upsamplers.emplace().emplace_back(o);
  fill_resnets(*this, o, o.out_channels);
}

Tensor LTX2VideoUpBlock3d::forward(Tensor hidden_states, const Tensor& timesteps, bool causal) const {
  auto compute = [this, causal](Tensor x, const Tensor& t) {
    if (conv_in) x = (*conv_in)(std::move(x), Tensor(), causal);
    const Tensor temb = embedded(time_embedder, t, x);
    if (upsamplers) x = (*upsamplers)[0](std::move(x), causal);
    for (auto& resnet : resnets) x = resnet(std::move(x), temb, causal);
    return x;
  };
  return with_checkpoint(
      gradient_checkpointing, [this](auto& f, const Tensors& in) { return run(f, in); }, std::move(hidden_states),
      timesteps, compute);
}

// ---- the halves

LTX2VideoEncoder3d::LTX2VideoEncoder3d(const LTX2VideoHalfOptions& o)
    : patch_size(o.patch_size),
      conv_in(o.in_channels * patch_size * patch_size, o.out_channels, o.mid_block.padding_mode),
      mid_block(o.mid_block),
      conv_out(o.mid_block.out_channels, o.out_channels + 1, o.mid_block.padding_mode) {
  for (auto& block : o.blocks) down_blocks.emplace_back(block);
}

// Patches become channels with their columns before their lines.
Tensor LTX2VideoEncoder3d::forward(const Tensor& sample, bool causal) const {
  const Tensor patches =
      unflatten(unflatten(rows_of(sample), 3, {-1, patch_size}), 2, {-1, patch_size}).permute({0, 1, 2, 4, 6, 5, 3});
  Tensor x = conv_in(video_of(patches.flatten(4, 6)), causal);
  for (auto& block : down_blocks) x = block(std::move(x), causal);
  x = mid_block(std::move(x), Tensor(), causal);
  x = after_norm(norm_out, conv_out, std::move(x), causal, {}, {});
  const int64_t means = x.size(1) - 1;
  const Tensor rows = rows_of(x), variance = rows.narrow(4, means, 1);
  Shape all = rows.shape();
  all[4] = means;
  return video_of(cat({rows.narrow(4, 0, means), variance.expand(all)}, 4));
}

LTX2VideoDecoder3d::LTX2VideoDecoder3d(const LTX2VideoHalfOptions& o)
    : patch_size(o.patch_size),
      conv_in(o.in_channels, o.mid_block.in_channels, o.mid_block.padding_mode),
      mid_block(o.mid_block),
      conv_out(o.blocks.back().out_channels, o.out_channels * patch_size * patch_size, o.mid_block.padding_mode) {
  for (auto& block : o.blocks) up_blocks.emplace_back(block);
  if (!o.mid_block.timestep_conditioning) return;
  const int64_t channels = o.blocks.back().out_channels;
  timestep_scale_multiplier = nn::parameter(full({}, 1000.0));
  time_embedder.emplace(2 * channels);
  scale_shift_table = modulation_table(2, channels);
}

Tensor LTX2VideoDecoder3d::forward(const Tensor& latents, const Tensor& timesteps, bool causal) const {
  const Tensor t = timestep_scale_multiplier ? timesteps * timestep_scale_multiplier : Tensor();
  Tensor x = conv_in(latents.contiguous(MemoryFormat::ChannelsLast), causal);
  x = mid_block(std::move(x), t, causal);
  for (auto& block : up_blocks) x = block(std::move(x), t, causal);
  Tensors told(2);
  if (time_embedder)
    told = rows_with_table(scale_shift_table, embedded(time_embedder, t, x).reshape({x.size(0), 2, -1}));
  x = after_norm(norm_out, conv_out, std::move(x), causal, told[1], told[0]);
  const Tensor patches = unflatten(rows_of(x), 4, {-1, patch_size, patch_size});  // columns before lines
  return video_of(patches.permute({0, 1, 2, 6, 3, 5, 4}).flatten(4, 5).flatten(2, 3));
}

}  // namespace sf::models
