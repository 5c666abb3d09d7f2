// LTX2LatentUpsamplerModel: enlarges the latents of LTX-2's videos, in their pictures, their frames, or both, between
// two stages of drawing them (HaCohen et al. 2026, arXiv 2601.03233). Latents are as the autoencoder gives them, not
// normalised.
#pragma once
#include "scaffolding/models/model.h"
#include "scaffolding/nn/conv.h"
#include "scaffolding/nn/norm.h"

namespace sf::models {

struct LTX2LatentUpsamplerConfig {
  int64_t in_channels = 128, mid_channels = 1024, num_blocks_per_stage = 4;
  int64_t dims = 3;  // of the convolutions: 2 see a frame at a time
  bool spatial_upsample = true, temporal_upsample = false;
  double rational_spatial_scale = 2;   // 0.75, 1.5, 2 or 4
  bool use_rational_resampler = true;  // of pictures alone; else they are doubled
  io::Fields fields();
};

// Conv2d or Conv3d under one name, with kernels of 3.
struct LTX2UpsamplerConv {
  std::optional<nn::Conv2d> flat;
  std::optional<nn::Conv3d> deep;
  LTX2UpsamplerConv(int64_t dims, int64_t in_channels, int64_t out_channels);
  nn::Module& module() { return flat ? static_cast<nn::Module&>(*flat) : *deep; }
  Tensor operator()(const Tensor& x) const { return flat ? (*flat)(x) : (*deep)(x); }
};

// Convolution, norm, SiLU, convolution, norm; beside it x; SiLU.
struct LTX2UpsamplerResBlock : nn::Module {
  LTX2UpsamplerConv conv1, conv2;
  nn::GroupNorm norm1, norm2;
  const char* type() const override { return "ResBlock"; }
  void visit(nn::Visitor& v) override {
    visit_members(v, "conv1, norm1, conv2, norm2", conv1.module(), norm1, conv2.module(), norm2);
  }
  template <class... A> auto operator()(A&&... a) const { return call_module(*this, std::forward<A>(a)...); }
  LTX2UpsamplerResBlock(int64_t channels, int64_t dims);
  Tensor forward(const Tensor& x) const;

 protected:
  Value forward_tensors(const nn::Values& args) override { return call_tensors(*this, args); }
};

// Leaves pixels out behind a filter of 5 x 5 binomial numbers: [N, C, H, W] to a `stride`th of the sides.
struct LTX2BlurDownsample : nn::Module {
  int64_t stride;
  nn::Buffer kernel;  // [1, 1, 5, 5]
  SF_MODULE(LTX2BlurDownsample, kernel)
  explicit LTX2BlurDownsample(int64_t stride);
  Tensor forward(const Tensor& x) const;
};

// Changes the sides by a ratio: `num` times as many pixels out of channels, of which every `den`th stays.
struct LTX2SpatialRationalResampler : nn::Module {
  int64_t num, den;
  nn::Conv2d conv;
  LTX2BlurDownsample blur_down;
  SF_MODULE(LTX2SpatialRationalResampler, conv, blur_down)
  LTX2SpatialRationalResampler(int64_t channels, std::pair<int64_t, int64_t> ratio);
  Tensor forward(const Tensor& x) const;  // [N, C, H, W]
};

struct LTX2LatentUpsamplerModel : ConfiguredModel<LTX2LatentUpsamplerConfig> {
  static constexpr const char* kName = "LTX2LatentUpsamplerModel";
  LTX2UpsamplerConv initial_conv;
  nn::GroupNorm initial_norm;
  nn::ModuleList<LTX2UpsamplerResBlock> res_blocks;
  // one of them, as `upsampler`
  std::optional<LTX2SpatialRationalResampler> rational;
  std::optional<nn::ModuleList<nn::Conv2d>> doubling;
  std::optional<nn::ModuleList<nn::Conv3d>> with_frames;
  nn::ModuleList<LTX2UpsamplerResBlock> post_upsample_res_blocks;
  LTX2UpsamplerConv final_conv;
  const char* type() const override { return kName; }
  void visit(nn::Visitor& v) override;
  template <class... A> auto operator()(A&&... a) const { return call_module(*this, std::forward<A>(a)...); }
  explicit LTX2LatentUpsamplerModel(Config config = {});
  const char* library() const override { return "ltx2"; }  // a module of diffusers, as its index has it

  // [B, in_channels, T, H, W] -> [B, in_channels, T, 2 H, 2 W], of the published configs; with temporal_upsample 2 T -
  // 1 frames, as the first one stands for itself.
  Tensor forward(const Tensor& hidden_states) const;

 private:
  Tensor enlarged(const Tensor& x) const;
};

}  // namespace sf::models
