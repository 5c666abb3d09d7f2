// What AutoencoderKLCogVideoX is made of, under diffusers' names and keys (Yang et al. 2024, arXiv 2408.06072):
// residual blocks of convolutions over time and picture that see no later frame. Videos are [B, C, T, H, W]; inside,
// they are channels-last.
//
// A video goes through in chunks of frames. What a convolution over time has to know of the chunk before are its last
// frames: a part is given those of its convolutions as a list, empty for the first chunk, and gives {result, those for
// the next chunk...}, in the order in which its convolutions are called. A video that is moved in is freed once read.
#pragma once
#include "scaffolding/models/model.h"
#include "scaffolding/nn/conv.h"
#include "scaffolding/nn/norm.h"

namespace sf::models {

// A convolution that sees kernel_size - 1 frames before each frame, and none after it. Before a video's first frame
// there is that frame again.
struct CogVideoXCausalConv3d : nn::Module {
  nn::Conv3d conv;
  SF_MODULE(CogVideoXCausalConv3d, conv)
  CogVideoXCausalConv3d(int64_t in_channels, int64_t out_channels, int64_t kernel_size);
  // x[B, in, T, H, W] after the frames `before`[B, in, kernel_size - 1, H, W], absent: of a video's beginning ->
  // {[B, out, T, H, W], the frames before the next chunk}.
  Tensors forward(Tensor x, const Tensor& before = {}) const;
};

// A group norm that latents scale and shift: norm(f) * conv_y(zq) + conv_b(zq), f[B, C, T, H, W] and zq[B, Z, t, h, w],
// whose numbers are repeated to f's size, those of an odd number's first frame for itself.
struct CogVideoXSpatialNorm3D : nn::Module {
  nn::GroupNorm norm_layer;
  CogVideoXCausalConv3d conv_y, conv_b;
  SF_MODULE(CogVideoXSpatialNorm3D, norm_layer, conv_y, conv_b)
  CogVideoXSpatialNorm3D(int64_t channels, int64_t zq_channels, int64_t groups);
  Tensor forward(const Tensor& f, const Tensor& zq) const;
  Tensor with_silu(const Tensor& f, const Tensor& zq) const;  // silu((*this)(f, zq)), in one where nobody looks
};

struct CogVideoXBlockOptions {
  int64_t num_layers = 1, groups = 32;
  double eps = 1e-6;                   // of group norms without latents
  std::optional<int64_t> zq_channels;  // a decoder's: norms are CogVideoXSpatialNorm3D
  bool resize = true;                  // halve the size at the end, or double it
  bool compress_time = false;          // and the number of frames
};

// Norm, SiLU, convolution, twice, beside a shortcut.
struct CogVideoXResnetBlock3D : nn::Module {
  std::optional<nn::GroupNorm> group_norm1, group_norm2;  // either pair is norm1 and norm2
  std::optional<CogVideoXSpatialNorm3D> spatial_norm1, spatial_norm2;
  CogVideoXCausalConv3d conv1, conv2;
  std::optional<nn::Conv3d> conv_shortcut;  // where the number of channels changes
  const char* type() const override { return "CogVideoXResnetBlock3D"; }
  void visit(nn::Visitor& v) override;
  template <class... A> auto operator()(A&&... a) const { return call_module(*this, std::forward<A>(a)...); }

  CogVideoXResnetBlock3D(int64_t in_channels, int64_t out_channels, const CogVideoXBlockOptions& options);
  static constexpr int64_t kCaches = 2;
  Tensors forward(const Tensor& hidden_states, const Tensor& zq, const Tensors& before) const;

 protected:
  Value forward_tensors(const nn::Values& args) override { return call_tensors(*this, args); }
};

// Halves the size by a convolution of stride 2, and the number of frames by their means, the first of an odd number
// apart. [B, C, T, H, W].
struct CogVideoXDownsample3D : nn::Module {
  nn::Conv2d conv;
  bool compress_time;
  SF_MODULE(CogVideoXDownsample3D, conv)
  CogVideoXDownsample3D(int64_t channels, bool compress_time);
  Tensor forward(const Tensor& x) const;
};

// Doubles the size by repeating pixels before a convolution, and the number of frames by repeating them, but for the
// first of an odd number. [B, C, T, H, W].
struct CogVideoXUpsample3D : nn::Module {
  nn::Conv2d conv;
  bool compress_time;
  SF_MODULE(CogVideoXUpsample3D, conv)
  CogVideoXUpsample3D(int64_t channels, bool compress_time);
  Tensor forward(const Tensor& x) const;
};

struct CogVideoXDownBlock3D : CheckpointedModule {
  nn::ModuleList<CogVideoXResnetBlock3D> resnets;
  std::optional<nn::ModuleList<CogVideoXDownsample3D>> downsamplers;
  SF_MODULE(CogVideoXDownBlock3D, resnets, downsamplers)
  CogVideoXDownBlock3D(int64_t in_channels, int64_t out_channels, const CogVideoXBlockOptions& options);
  Tensors forward(Tensor hidden_states, const Tensors& before) const;
};

struct CogVideoXMidBlock3D : CheckpointedModule {
  nn::ModuleList<CogVideoXResnetBlock3D> resnets;
  SF_MODULE(CogVideoXMidBlock3D, resnets)
  CogVideoXMidBlock3D(int64_t channels, const CogVideoXBlockOptions& options);
  Tensors forward(Tensor hidden_states, const Tensor& zq, const Tensors& before) const;
};

struct CogVideoXUpBlock3D : CheckpointedModule {
  nn::ModuleList<CogVideoXResnetBlock3D> resnets;
  std::optional<nn::ModuleList<CogVideoXUpsample3D>> upsamplers;
  SF_MODULE(CogVideoXUpBlock3D, resnets, upsamplers)
  CogVideoXUpBlock3D(int64_t in_channels, int64_t out_channels, const CogVideoXBlockOptions& options);
  Tensors forward(Tensor hidden_states, const Tensor& zq, const Tensors& before) const;
};

struct CogVideoXHalfOptions {
  int64_t in_channels, out_channels;  // of this half
  std::vector<int64_t> block_out_channels;
  int64_t layers_per_block, norm_num_groups;
  double norm_eps;
  int64_t compressing_blocks;  // how many of the first blocks halve, or double, the number of frames
};

struct CogVideoXEncoder3D : nn::Module {
  CogVideoXCausalConv3d conv_in;
  nn::ModuleList<CogVideoXDownBlock3D> down_blocks;
  CogVideoXMidBlock3D mid_block;
  nn::GroupNorm norm_out;
  CogVideoXCausalConv3d conv_out;
  SF_MODULE(CogVideoXEncoder3D, conv_in, down_blocks, mid_block, norm_out, conv_out)
  explicit CogVideoXEncoder3D(const CogVideoXHalfOptions& options);
  // sample[B, in, T, H, W] -> {[B, out, T / 2^k, H / 2^n, W / 2^n], what the next chunk needs...}
  Tensors forward(const Tensor& sample, const Tensors& before) const;
};

struct CogVideoXDecoder3D : nn::Module {
  CogVideoXCausalConv3d conv_in;
  CogVideoXMidBlock3D mid_block;
  nn::ModuleList<CogVideoXUpBlock3D> up_blocks;
  CogVideoXSpatialNorm3D norm_out;
  CogVideoXCausalConv3d conv_out;
  SF_MODULE(CogVideoXDecoder3D, conv_in, mid_block, up_blocks, norm_out, conv_out)
  explicit CogVideoXDecoder3D(const CogVideoXHalfOptions& options);
  // sample[B, in, t, h, w] -> {[B, out, 2^k t, 2^n h, 2^n w], what the next chunk needs...}
  Tensors forward(const Tensor& sample, const Tensors& before) const;
};

}  // namespace sf::models
