// AutoencoderKLCogVideoX: CogVideoX's autoencoder of videos, a quarter of their frames and an eighth of their sides in
// latents (Yang et al. 2024, arXiv 2408.06072). The first frame has latents of its own, so that a picture is a video of
// one frame.
#pragma once
#include "scaffolding/models/autoencoders/cogvideox_blocks.h"
#include "scaffolding/models/autoencoders/vae.h"
#include "scaffolding/models/autoencoders/video_parts.h"

namespace sf::models {

struct AutoencoderKLCogVideoXConfig {
  int64_t in_channels = 3, out_channels = 3;
  std::vector<std::string> down_block_types = std::vector<std::string>(4, "CogVideoXDownBlock3D"),
                           up_block_types = std::vector<std::string>(4, "CogVideoXUpBlock3D");
  std::vector<int64_t> block_out_channels{128, 256, 256, 512};
  int64_t latent_channels = 16, layers_per_block = 3;
  std::string act_fn = "silu";
  double norm_eps = 1e-6;
  int64_t norm_num_groups = 32, temporal_compression_ratio = 4;
  int64_t sample_height = 480, sample_width = 720;  // pixels; a tile has half as many on a side
  double scaling_factor = 1.15258426;
  std::optional<double> shift_factor;
  std::optional<std::vector<double>> latents_mean, latents_std;
  bool force_upcast = true, use_quant_conv = false, use_post_quant_conv = false;
  bool invert_scale_latents = false;  // 1.5: a picture's latents are divided by scaling_factor, by the pipeline
  io::Fields fields();
};

struct AutoencoderKLCogVideoX : ConfiguredModel<AutoencoderKLCogVideoXConfig> {
  static constexpr const char* kName = "AutoencoderKLCogVideoX";
  CogVideoXEncoder3D encoder;
  CogVideoXDecoder3D decoder;
  std::optional<nn::Conv3d> quant_conv, post_quant_conv;
  SF_MODULE(AutoencoderKLCogVideoX, encoder, decoder, quant_conv, post_quant_conv)
  explicit AutoencoderKLCogVideoX(Config config = {});

  // A chunk of frames goes through at a time, the frames that are left over with the first one. The network was trained
  // with chunks of these sizes.
  int64_t num_sample_frames_batch_size = 8, num_latent_frames_batch_size = 2;

  // Slicing computes one video of a batch at a time, tiling overlapping parts of a video whose pictures are larger than
  // a tile, whose seams are blended. A tiled result differs from a whole one, because norms see a tile only; it equals
  // diffusers' tiled one.
  bool use_slicing = false, use_tiling = false;
  int64_t tile_sample_min_height, tile_sample_min_width;  // pixels; half of sample_height and sample_width at first
  int64_t tile_latent_min_height, tile_latent_min_width;  // latents
  double tile_overlap_factor_height = 1.0 / 6, tile_overlap_factor_width = 1.0 / 5;  // of a tile's sides
  void enable_slicing(bool on = true) { use_slicing = on; }
  void enable_tiling(bool on = true) { use_tiling = on; }
  void set_tile(int64_t height, int64_t width);  // in pixels; latents follow

  // [B, in, T, H, W] in [-1, 1] -> [B, 2 latent, 1 + (T - 1) / 4, H / 8, W / 8], of the default config and 8 k + 1
  // frames
  Tensor moments(const Tensor& x) const;
  DiagonalGaussianDistribution encode(const Tensor& x) const { return DiagonalGaussianDistribution(moments(x)); }
  Tensor decode(const Tensor& z) const;  // [B, latent, t, h, w] -> [B, out, 1 + 4 (t - 1), 8 h, 8 w], for odd t
  // decode() of which nothing is kept: chunks of frames, in tiles all frames of a row of them. Each part is freed once
  // it was taken.
  void decode_in_parts(const Tensor& z, const TakeVideoPart& take) const;
  Tensor tiled_encode(const Tensor& x) const;  // moments, in tiles whatever the size
  Tensor tiled_decode(const Tensor& z) const;
  // There and back, by a sample of the latents or by their means.
  Tensor forward(const Tensor& sample, bool sample_posterior = false, const Generator& generator = {}) const;

 private:
  Tensor encoded(const Tensor& x) const;  // in chunks of frames
  Tensor decoded(const Tensor& z) const;
  template <class Take> void decode_chunks(const Tensor& z, const Take& take) const;
  template <class Take> void decode_rows(const Tensor& z, const Take& take) const;  // of tiles
  bool decodes_in_tiles(const Tensor& z) const;
};

}  // namespace sf::models
