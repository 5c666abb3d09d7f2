// What AutoencoderKLLTX2Audio is made of, under diffusers' names and keys (LTX-2, HaCohen et al. 2026, arXiv
// 2601.03233): residual blocks of 2-D convolutions over mel spectrograms [B, C, time, mel], which along one axis see
// nothing behind a place. Inside, spectrograms are channels-last.
#pragma once
#include "scaffolding/models/model.h"
#include "scaffolding/nn/conv.h"
#include "scaffolding/nn/dropout.h"
#include "scaffolding/nn/norm.h"

namespace sf::models {

// The axis along which convolutions see what is before a place only: height is time, width the mel bins.
// WidthCompatible: width, with the resampling of older checkpoints.
enum class LTX2CausalAxis : uint8_t { None, Width, WidthCompatible, Height };

// A convolution of stride 1 that keeps the size: zeros are around its input, along the causal axis before it alone.
struct LTX2AudioCausalConv2d : nn::Module {
  nn::Conv2d conv;
  Shape padding;  // left, right, top, bottom
  SF_MODULE(LTX2AudioCausalConv2d, conv)
  LTX2AudioCausalConv2d(int64_t in_channels, int64_t out_channels, int64_t kernel_size, LTX2CausalAxis axis);
  Tensor forward(const Tensor& x) const;
};

// "group": a group norm of 32 groups, with keys. "pixel": x / sqrt(mean over channels of x^2 + eps), without.
struct LTX2AudioNorm : nn::Module {
  int64_t channels;
  Tensor weight, bias;  // [C], of a group norm
  SF_MODULE(LTX2AudioNorm, weight, bias)
  LTX2AudioNorm(int64_t channels, bool group);
  Tensor forward(const Tensor& x) const;
};

struct LTX2AudioBlockOptions {
  bool group_norm = false;
  LTX2CausalAxis axis = LTX2CausalAxis::Height;
  double dropout = 0;
};

// Norm, SiLU, convolution, twice, beside a shortcut.
struct LTX2AudioResnetBlock : nn::Module {
  LTX2AudioNorm norm1;
  LTX2AudioCausalConv2d conv1;
  LTX2AudioNorm norm2;
  nn::Dropout dropout;
  LTX2AudioCausalConv2d conv2;
  std::optional<LTX2AudioCausalConv2d> nin_shortcut;  // where the number of channels changes
  SF_MODULE(LTX2AudioResnetBlock, norm1, conv1, norm2, dropout, conv2, nin_shortcut)
  LTX2AudioResnetBlock(int64_t in_channels, int64_t out_channels, const LTX2AudioBlockOptions& options);
  Tensor forward(const Tensor& x) const;
};

// Attention of one head between all places of a spectrogram, beside a shortcut.
struct LTX2AudioAttnBlock : nn::Module {
  LTX2AudioNorm norm;
  nn::Conv2d to_q, to_k, to_v, proj_out;  // keys q, k, v, proj_out
  const char* type() const override { return "LTX2AudioAttnBlock"; }
  void visit(nn::Visitor& v) override { visit_members(v, "norm, q, k, v, proj_out", norm, to_q, to_k, to_v, proj_out); }
  template <class... A> auto operator()(A&&... a) const { return call_module(*this, std::forward<A>(a)...); }
  LTX2AudioAttnBlock(int64_t channels, bool group_norm);
  Tensor forward(const Tensor& x) const;

 protected:
  Value forward_tensors(const nn::Values& args) override { return call_tensors(*this, args); }
};

// Halves both axes by a convolution of stride 2.
struct LTX2AudioDownsample : nn::Module {
  nn::Conv2d conv;
  Shape padding;  // left, right, top, bottom
  SF_MODULE(LTX2AudioDownsample, conv)
  LTX2AudioDownsample(int64_t channels, LTX2CausalAxis axis);
  Tensor forward(const Tensor& x) const;
};

// Doubles both axes by repeating places before a convolution. The first place of the causal axis stands for itself, so
// that n become 2 n - 1.
struct LTX2AudioUpsample : nn::Module {
  LTX2AudioCausalConv2d conv;
  LTX2CausalAxis axis;
  SF_MODULE(LTX2AudioUpsample, conv)
  LTX2AudioUpsample(int64_t channels, LTX2CausalAxis axis);
  Tensor forward(const Tensor& x) const;
};

// Residual blocks of one size, each with attention behind it where the size has some, and what changes the size.
struct LTX2AudioStage : nn::Module {
  nn::ModuleList<LTX2AudioResnetBlock> block;
  nn::ModuleList<LTX2AudioAttnBlock> attn;
  std::optional<LTX2AudioDownsample> downsample;
  std::optional<LTX2AudioUpsample> upsample;
  SF_MODULE(LTX2AudioStage, block, attn, downsample, upsample)
  LTX2AudioStage(int64_t in_channels, int64_t out_channels, int64_t num_blocks, bool attention,
                 const LTX2AudioBlockOptions& options);
  Tensor forward(Tensor x) const;
};

struct LTX2AudioMid : nn::Module {
  LTX2AudioResnetBlock block_1;
  std::optional<LTX2AudioAttnBlock> attn_1;
  LTX2AudioResnetBlock block_2;
  SF_MODULE(LTX2AudioMid, block_1, attn_1, block_2)
  LTX2AudioMid(int64_t channels, bool attention, const LTX2AudioBlockOptions& options);
  Tensor forward(const Tensor& x) const;
};

struct LTX2AudioHalfOptions {
  int64_t in_channels, out_channels;  // of this half
  int64_t base_channels;
  std::vector<int64_t> ch_mult;  // channels of each size, times base_channels, the largest first
  int64_t num_res_blocks, resolution;
  std::vector<int64_t> attn_resolutions;  // sizes with attention; the largest counts as `resolution`
  bool mid_block_add_attention;
  LTX2AudioBlockOptions block;
};

struct LTX2AudioEncoder : nn::Module {
  LTX2AudioCausalConv2d conv_in;
  nn::ModuleList<LTX2AudioStage> down;
  LTX2AudioMid mid;
  LTX2AudioNorm norm_out;
  LTX2AudioCausalConv2d conv_out;
  SF_MODULE(LTX2AudioEncoder, conv_in, down, mid, norm_out, conv_out)
  explicit LTX2AudioEncoder(const LTX2AudioHalfOptions& options);
  Tensor forward(const Tensor& x) const;  // [B, in, L, M] -> [B, out, L / 2^n, M / 2^n], rounded up where causal
};

struct LTX2AudioDecoder : nn::Module {
  LTX2AudioCausalConv2d conv_in;
  LTX2AudioMid mid;
  nn::ModuleList<LTX2AudioStage> up;  // the largest size first; called from the last one
  LTX2AudioNorm norm_out;
  LTX2AudioCausalConv2d conv_out;
  SF_MODULE(LTX2AudioDecoder, conv_in, mid, up, norm_out, conv_out)
  explicit LTX2AudioDecoder(const LTX2AudioHalfOptions& options);
  Tensor forward(const Tensor& z) const;  // [B, in, l, m] -> [B, out, about 2^n l, about 2^n m]
};

}  // namespace sf::models
