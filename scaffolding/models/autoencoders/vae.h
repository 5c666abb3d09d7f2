// What autoencoders with a Gaussian latent are made of, under diffusers' names and keys: the two halves of
// AutoencoderKL, their blocks, and the distribution that an encoder gives. Pictures are [B, C, H, W]; inside,
// they are channels-last.
#pragma once
#include "scaffolding/core/generator.h"
#include "scaffolding/models/model.h"
#include "scaffolding/models/parts/attention.h"
#include "scaffolding/models/parts/resnet.h"

namespace sf::models {

// A normal distribution for every latent, from moments[B, 2 C, ...]: means, then logarithms of variances,
// which are clamped to [-30, 20].
struct DiagonalGaussianDistribution {
  Tensor parameters, mean, logvar, std, var;
  bool deterministic = false;  // its variance is taken as 0
  explicit DiagonalGaussianDistribution(const Tensor& moments, bool deterministic = false);

  // mean + std * noise, in the dtype and on the device of the moments. A generator of the CPU draws there,
  // for any device.
  Tensor sample(const Generator& generator = {}) const;
  // one for each of the batch; ValueError for another count
  Tensor sample(const std::vector<Generator>& generators) const;
  const Tensor& mode() const { return mean; }
  Tensor kl() const;  // divergence from the standard normal distribution: [B] of a [B, C, H, W]
  Tensor kl(const DiagonalGaussianDistribution& other) const;
  Tensor nll(const Tensor& sample, const Shape& dims = {1, 2, 3}) const;  // negative log likelihood, summed over dims

 private:
  Tensor zero() const;  // what a deterministic one has for kl and nll
};

// A config's down_block_types and up_block_types with and without this are of one class each here.
struct VaeBlockOptions {
  int64_t num_layers = 1, groups = 32;
  bool resize = true;      // halve the size at the end of an encoder's block, double it in a decoder's
  bool attention = false;  // after each residual block: AttnDownEncoderBlock2D, AttnUpDecoderBlock2D
};

struct DownEncoderBlock2D : CheckpointedModule {
  std::optional<nn::ModuleList<Attention>> attentions;
  nn::ModuleList<ResnetBlock2D> resnets;
  std::optional<nn::ModuleList<Downsample2D>> downsamplers;
  SF_MODULE(DownEncoderBlock2D, attentions, resnets, downsamplers)
  DownEncoderBlock2D(int64_t in_channels, int64_t out_channels, const VaeBlockOptions& options);
  Tensor forward(Tensor hidden_states) const;  // moved in, it is freed once read
};

struct UpDecoderBlock2D : CheckpointedModule {
  std::optional<nn::ModuleList<Attention>> attentions;
  nn::ModuleList<ResnetBlock2D> resnets;
  std::optional<nn::ModuleList<Upsample2D>> upsamplers;
  SF_MODULE(UpDecoderBlock2D, attentions, resnets, upsamplers)
  UpDecoderBlock2D(int64_t in_channels, int64_t out_channels, const VaeBlockOptions& options);
  Tensor forward(Tensor hidden_states) const;  // moved in, it is freed once read
};

// Two residual blocks, and attention of one head between all pixels in their middle.
struct UNetMidBlock2D : CheckpointedModule {
  nn::ModuleList<Attention> attentions;
  nn::ModuleList<ResnetBlock2D> resnets;
  SF_MODULE(UNetMidBlock2D, attentions, resnets)
  UNetMidBlock2D(int64_t channels, int64_t groups, bool add_attention);
  Tensor forward(const Tensor& hidden_states) const;
};

struct VaeOptions {
  int64_t in_channels = 3, out_channels = 3;
  std::vector<std::string> block_types;
  std::vector<int64_t> block_out_channels;
  int64_t layers_per_block = 1, norm_num_groups = 32;
  bool mid_block_add_attention = true;
};

struct Encoder : nn::Module {
  nn::Conv2d conv_in;
  nn::ModuleList<DownEncoderBlock2D> down_blocks;
  UNetMidBlock2D mid_block;
  nn::GroupNorm conv_norm_out;
  nn::Conv2d conv_out;
  SF_MODULE(Encoder, conv_in, down_blocks, mid_block, conv_norm_out, conv_out)
  explicit Encoder(const VaeOptions& options);
  Tensor forward(const Tensor& sample) const;  // [B, in, H, W] -> [B, out, H / 2^n, W / 2^n]
};

struct Decoder : nn::Module {
  nn::Conv2d conv_in;
  UNetMidBlock2D mid_block;
  nn::ModuleList<UpDecoderBlock2D> up_blocks;
  nn::GroupNorm conv_norm_out;
  nn::Conv2d conv_out;
  SF_MODULE(Decoder, conv_in, mid_block, up_blocks, conv_norm_out, conv_out)
  explicit Decoder(const VaeOptions& options);
  Tensor forward(const Tensor& sample) const;  // [B, in, h, w] -> [B, out, 2^n h, 2^n w]
};

}  // namespace sf::models
