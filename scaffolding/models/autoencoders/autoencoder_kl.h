// AutoencoderKL: the autoencoder of Stable Diffusion, SDXL and their relatives.
#pragma once
#include "scaffolding/models/autoencoders/vae.h"

namespace sf::models {

struct AutoencoderKLConfig {
  int64_t in_channels = 3, out_channels = 3;
  std::vector<std::string> down_block_types{"DownEncoderBlock2D"}, up_block_types{"UpDecoderBlock2D"};
  std::vector<int64_t> block_out_channels{64};
  int64_t layers_per_block = 1;
  std::string act_fn = "silu";
  int64_t latent_channels = 4, norm_num_groups = 32;
  io::Object sample_size = int64_t(32);  // pixels on a side, or [height, width]
  double scaling_factor = 0.18215;
  std::optional<double> shift_factor;
  std::optional<std::vector<double>> latents_mean, latents_std;
  bool force_upcast = true, use_quant_conv = true, use_post_quant_conv = true, mid_block_add_attention = true;
  io::Fields fields();
};

struct AutoencoderKL : ConfiguredModel<AutoencoderKLConfig> {
  static constexpr const char* kName = "AutoencoderKL";
  Encoder encoder;
  Decoder decoder;
  std::optional<nn::Conv2d> quant_conv, post_quant_conv;
  SF_MODULE(AutoencoderKL, encoder, decoder, quant_conv, post_quant_conv)
  explicit AutoencoderKL(Config config = {});

  // Slicing computes one picture of a batch at a time, tiling overlapping squares of a picture that is larger than
  // tile_sample_min_size, whose seams are blended. A tiled result differs from a whole one, because norms and attention
  // see a tile only; it equals diffusers' tiled one.
  bool use_slicing = false, use_tiling = false;
  // pixels and latents on a side; from sample_size at first
  int64_t tile_sample_min_size = 32, tile_latent_min_size = 32;
  double tile_overlap_factor = 0.25;  // of a tile's side
  void enable_slicing(bool on = true) { use_slicing = on; }
  void enable_tiling(bool on = true) { use_tiling = on; }

  Tensor moments(const Tensor& x) const;  // [B, in, H, W] in [-1, 1] -> [B, 2 latent, H / 2^n, W / 2^n]
  DiagonalGaussianDistribution encode(const Tensor& x) const { return DiagonalGaussianDistribution(moments(x)); }
  Tensor decode(const Tensor& z) const;  // [B, latent, h, w] -> [B, out, 2^n h, 2^n w]
  // About what decode needs at once on CUDA besides weights, for latents[B, latent, h, w] in this dtype: more than it
  // took in measurements, with 256 MB at most for the rows of a convolution or a library's workspace. In slices: for
  // one picture; in tiles: for one tile and the parts of the picture.
  int64_t decode_bytes(const Shape& latents, DType dtype, bool sliced, bool tiled) const;
  Tensor tiled_encode(const Tensor& x) const;  // moments, in tiles whatever the size
  Tensor tiled_decode(const Tensor& z) const;
  // There and back, by a sample of the latents or by their means.
  Tensor forward(const Tensor& sample, bool sample_posterior = false, const Generator& generator = {}) const;

  // Writes into the first blend_extent rows (columns) of b[B, C, H, W] a passage from the last ones of a, which lies
  // above (left of) it. Returns b.
  static Tensor blend_v(const Tensor& a, Tensor b, int64_t blend_extent);
  static Tensor blend_h(const Tensor& a, Tensor b, int64_t blend_extent);

  std::string current_key(const std::string& file_key) const override;
};

}  // namespace sf::models
