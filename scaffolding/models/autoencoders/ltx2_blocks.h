// What AutoencoderKLLTX2Video is made of, under diffusers' names and keys (HaCohen et al. 2026, arXiv 2601.03233):
// residual blocks of convolutions over time and picture with norms of each pixel's channels, and resampling that moves
// pixels and frames to channels and back. Videos are [B, C, T, H, W]; inside, they are channels-last.
//
// A convolution over time is `causal`, when it sees no later frame, or sees as many after as before; every part is told
// at each call. A video that is moved in is freed once read.
#pragma once
#include "scaffolding/models/model.h"
#include "scaffolding/models/parts/embeddings.h"
#include "scaffolding/nn/conv.h"
#include "scaffolding/nn/norm.h"

namespace sf::models {

// x / sqrt(mean of squares over the channels + eps), at each place of [B, C, T, H, W].
struct PerChannelRMSNorm : nn::Module {
  double eps = 1e-8;
  SF_MODULE(PerChannelRMSNorm)
  Tensor forward(const Tensor& x) const;
};

// A 3x3x3 convolution. Beyond a video's first and last frames there are these again; around its pictures there is what
// padding_mode says, a convolution's.
struct LTX2VideoCausalConv3d : nn::Module {
  nn::Conv3d conv;
  SF_MODULE(LTX2VideoCausalConv3d, conv)
  LTX2VideoCausalConv3d(int64_t in_channels, int64_t out_channels, const std::string& padding_mode, int64_t stride = 1);
  Tensor forward(Tensor x, bool causal) const;  // [B, in, T, H, W] -> [B, out, (T - 1) / stride + 1, ...]
};

// What diffusers calls PixArtAlphaCombinedTimestepSizeEmbeddings, without sizes: timesteps[B] -> [B, embedding_dim].
struct LTX2TimestepEmbedder : nn::Module {
  TimestepEmbedding timestep_embedder;
  SF_MODULE(LTX2TimestepEmbedder, timestep_embedder)
  explicit LTX2TimestepEmbedder(int64_t embedding_dim);
  Tensor forward(const Tensor& timesteps, DType dtype) const;
};

// Of a block, and of each of its residual blocks.
struct LTX2VideoBlockOptions {
  int64_t in_channels = 0, out_channels = 0;
  int64_t num_layers = 1;
  double eps = 1e-6;  // of the layer norm before a shortcut
  std::string padding_mode = "zeros";
  Shape stride = {};                   // [t, h, w], of what changes the size; empty: nothing does
  bool by_convolution = false;         // which is a convolution that leaves frames and pixels out
  bool inject_noise = false;           // noise of a picture is added behind convolutions, by a factor for each channel
  bool timestep_conditioning = false;  // timesteps scale and shift behind norms
  bool residual = false;               // the enlarged video is added to what enlarges it
  int64_t upscale_factor = 1;          // by which enlarging lowers the number of channels
};

// Norm, SiLU, convolution, twice, beside a shortcut.
struct LTX2VideoResnetBlock3d : nn::Module {
  PerChannelRMSNorm norm1;
  LTX2VideoCausalConv3d conv1;
  PerChannelRMSNorm norm2;
  LTX2VideoCausalConv3d conv2;
  std::optional<nn::LayerNorm> norm3;  // these two where the number of channels changes
  std::optional<nn::Conv3d> conv_shortcut;
  Tensor per_channel_scale1, per_channel_scale2;  // [C, 1, 1], or absent
  Tensor scale_shift_table;                       // [4, C], or absent
  SF_MODULE(LTX2VideoResnetBlock3d, norm1, conv1, norm2, conv2, norm3, conv_shortcut, per_channel_scale1,
            per_channel_scale2, scale_shift_table)
  LTX2VideoResnetBlock3d(int64_t in_channels, int64_t out_channels, const LTX2VideoBlockOptions& options);
  // temb[B, 4 C]: the embedded timesteps, where they condition it
  Tensor forward(Tensor hidden_states, const Tensor& temb, bool causal) const;
};

// Pixels and frames become channels, behind a convolution that lowers their number, beside means of the input.
struct LTX2VideoDownsampler3d : nn::Module {
  Shape stride;
  int64_t group_size;  // channels of which one is the mean
  LTX2VideoCausalConv3d conv;
  SF_MODULE(LTX2VideoDownsampler3d, conv)
  explicit LTX2VideoDownsampler3d(const LTX2VideoBlockOptions& options);
  // [B, in, T, H, W] -> [B, out, (T - 1) / stride[0] + 1, H / stride[1], W / stride[2]]
  Tensor forward(Tensor x, bool causal) const;
};

// Channels become pixels and frames, behind a convolution that raises their number.
struct LTX2VideoUpsampler3d : nn::Module {
  Shape stride;
  bool residual;
  int64_t upscale_factor;
  LTX2VideoCausalConv3d conv;
  SF_MODULE(LTX2VideoUpsampler3d, conv)
  explicit LTX2VideoUpsampler3d(const LTX2VideoBlockOptions& options);
  // [B, C, T, H, W] -> [B, C / upscale_factor, stride[0] (T - 1) + 1, stride[1] H, stride[2] W]
  Tensor forward(Tensor x, bool causal) const;
};

struct LTX2VideoDownBlock3D : CheckpointedModule {
  nn::ModuleList<LTX2VideoResnetBlock3d> resnets;
  // at most one, as `downsamplers`
  std::optional<nn::ModuleList<LTX2VideoDownsampler3d>> unshuffling;
  std::optional<nn::ModuleList<LTX2VideoCausalConv3d>> strided;
  const char* type() const override { return "LTX2VideoDownBlock3D"; }
  void visit(nn::Visitor& v) override;
  template <class... A> auto operator()(A&&... a) const { return call_module(*this, std::forward<A>(a)...); }
  explicit LTX2VideoDownBlock3D(const LTX2VideoBlockOptions& options);
  Tensor forward(Tensor hidden_states, bool causal) const;
};

struct LTX2VideoMidBlock3d : CheckpointedModule {
  std::optional<LTX2TimestepEmbedder> time_embedder;
  nn::ModuleList<LTX2VideoResnetBlock3d> resnets;
  SF_MODULE(LTX2VideoMidBlock3d, time_embedder, resnets)
  explicit LTX2VideoMidBlock3d(const LTX2VideoBlockOptions& options);
  Tensor forward(Tensor hidden_states, const Tensor& timesteps, bool causal) const;
};

struct LTX2VideoUpBlock3d : CheckpointedModule {
  std::optional<LTX2TimestepEmbedder> time_embedder;
  std::optional<LTX2VideoResnetBlock3d> conv_in;  // where the number of channels changes otherwise than by enlarging
  std::optional<nn::ModuleList<LTX2VideoUpsampler3d>> upsamplers;
  nn::ModuleList<LTX2VideoResnetBlock3d> resnets;
  SF_MODULE(LTX2VideoUpBlock3d, time_embedder, conv_in, upsamplers, resnets)
  explicit LTX2VideoUpBlock3d(const LTX2VideoBlockOptions& options);
  Tensor forward(Tensor hidden_states, const Tensor& timesteps, bool causal) const;
};

// An encoder or a decoder.
struct LTX2VideoHalfOptions {
  int64_t in_channels, out_channels;  // of this half; pixels have patch_size^2 times as many
  int64_t patch_size;
  LTX2VideoBlockOptions mid_block;
  std::vector<LTX2VideoBlockOptions> blocks;  // in the order in which they are called
};

struct LTX2VideoEncoder3d : nn::Module {
  int64_t patch_size;
  LTX2VideoCausalConv3d conv_in;
  nn::ModuleList<LTX2VideoDownBlock3D> down_blocks;
  LTX2VideoMidBlock3d mid_block;
  PerChannelRMSNorm norm_out;
  LTX2VideoCausalConv3d conv_out;
  SF_MODULE(LTX2VideoEncoder3d, conv_in, down_blocks, mid_block, norm_out, conv_out)
  explicit LTX2VideoEncoder3d(const LTX2VideoHalfOptions& options);
  // [B, in, T, H, W] -> means [B, out, t, h, w], then one logarithm of a variance for all of them, out times
  Tensor forward(const Tensor& sample, bool causal) const;
};

struct LTX2VideoDecoder3d : nn::Module {
  int64_t patch_size;
  LTX2VideoCausalConv3d conv_in;
  LTX2VideoMidBlock3d mid_block;
  nn::ModuleList<LTX2VideoUpBlock3d> up_blocks;
  PerChannelRMSNorm norm_out;
  LTX2VideoCausalConv3d conv_out;
  Tensor timestep_scale_multiplier;  // [], and the other two: where timesteps condition it
  std::optional<LTX2TimestepEmbedder> time_embedder;
  Tensor scale_shift_table;  // [2, C]
  SF_MODULE(LTX2VideoDecoder3d, conv_in, mid_block, up_blocks, norm_out, conv_out, timestep_scale_multiplier,
            time_embedder, scale_shift_table)
  explicit LTX2VideoDecoder3d(const LTX2VideoHalfOptions& options);
  // timesteps[B]: of the noise that is left in latents, from 0 to 1
  Tensor forward(const Tensor& latents, const Tensor& timesteps, bool causal) const;
};

// Blocks of stride [t, h, w] of a video's rows [B, T, H, W, C] as channels [B, T / t, H / h, W / w, C t h w], in which
// a channel's frames, then lines, then columns lie behind each other, and back.
Tensor blocks_to_channels(const Tensor& rows, const Shape& stride);
Tensor channels_to_blocks(const Tensor& rows, const Shape& stride);

}  // namespace sf::models
