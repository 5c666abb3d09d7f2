// AutoencoderKLLTX2Video: LTX-2's autoencoder of videos, an eighth of their frames and a 32nd of their sides in latents
// of 128 channels (HaCohen et al. 2026, arXiv 2601.03233). The first frame has latents of its own, so that a picture is
// a video of one frame.
#pragma once
#include "scaffolding/models/autoencoders/ltx2_blocks.h"
#include "scaffolding/models/autoencoders/vae.h"
#include "scaffolding/models/autoencoders/video_parts.h"

namespace sf::models {

io::Object the_same_for_blocks(size_t blocks, bool value);  // a list

// diffusers' fields; the defaults are LTX-2.0's, but for decoder_causal and the compression ratios. Object: a bool for
// all blocks, or a list with one for each.
struct AutoencoderKLLTX2VideoConfig {
  int64_t in_channels = 3, out_channels = 3, latent_channels = 128;
  std::vector<int64_t> block_out_channels{256, 512, 1024, 2048};
  std::vector<std::string> down_block_types = std::vector<std::string>(4, "LTX2VideoDownBlock3D");
  std::vector<int64_t> decoder_block_out_channels{256, 512, 1024};
  std::vector<int64_t> layers_per_block{4, 6, 6, 2, 2},
      decoder_layers_per_block{5, 5, 5, 5};  // the last: in the middle
  io::Object spatio_temporal_scaling = the_same_for_blocks(4, true),
             decoder_spatio_temporal_scaling = the_same_for_blocks(3, true);
  io::Object decoder_inject_noise = the_same_for_blocks(4, false);
  std::vector<std::string> downsample_type{"spatial", "temporal", "spatiotemporal", "spatiotemporal"};
  std::vector<std::string> upsample_type = std::vector<std::string>(3, "spatiotemporal");  // in the order of the calls
  io::Object upsample_residual = the_same_for_blocks(3, true);
  std::vector<int64_t> upsample_factor{2, 2, 2};
  bool timestep_conditioning = false;
  int64_t patch_size = 4, patch_size_t = 1;
  double resnet_norm_eps = 1e-6, scaling_factor = 1;
  bool encoder_causal = true, decoder_causal = true;
  std::string encoder_spatial_padding_mode = "zeros", decoder_spatial_padding_mode = "reflect";
  std::optional<int64_t> spatial_compression_ratio, temporal_compression_ratio;
  io::Fields fields();
};

struct AutoencoderKLLTX2Video : ConfiguredModel<AutoencoderKLLTX2VideoConfig> {
  static constexpr const char* kName = "AutoencoderKLLTX2Video";
  LTX2VideoEncoder3d encoder;
  LTX2VideoDecoder3d decoder;
  nn::Buffer latents_mean, latents_std;  // [latent], of what the encoder gives: pipelines take them out and put them in
  SF_MODULE(AutoencoderKLLTX2Video, encoder, decoder, latents_mean, latents_std)
  explicit AutoencoderKLLTX2Video(Config config = {});

  // LTX-2.3's config where a file has its fourth block of the decoder, else LTX-2.0's.
  static io::Object config_of_weights(const std::vector<io::CheckpointEntry>& tensors);

  // Pixels and frames for each latent, by which tiles are cut: the config's, or by a rule of diffusers' that is true
  // where every block scales both.
  int64_t spatial_compression_ratio, temporal_compression_ratio;

  // Slicing computes one video of a batch at a time, tiling overlapping parts of a video whose pictures are larger than
  // a tile, and framewise decoding overlapping runs of frames of one that is longer, whose seams are blended. A tiled
  // result differs a little from a whole one; it equals diffusers' tiled one. With framewise decoding videos are
  // encoded so, too.
  bool use_slicing = false, use_tiling = false, use_framewise_encoding = false, use_framewise_decoding = false;
  int64_t tile_sample_min_height = 512, tile_sample_min_width = 512, tile_sample_min_num_frames = 16;
  int64_t tile_sample_stride_height = 448, tile_sample_stride_width = 448, tile_sample_stride_num_frames = 8;
  void enable_slicing(bool on = true) { use_slicing = on; }
  void enable_tiling(bool on = true) { use_tiling = on; }

  // [B, in, T, H, W] in [-1, 1] -> [B, 2 latent, 1 + (T - 1) / 8, H / 32, W / 32], of the published configs and 8 k + 1
  // frames. causal: true, or what the config says.
  Tensor moments(const Tensor& x, std::optional<bool> causal = {}) const;
  DiagonalGaussianDistribution encode(const Tensor& x, std::optional<bool> causal = {}) const {
    return DiagonalGaussianDistribution(moments(x, causal));
  }
  // [B, latent, t, h, w] -> [B, out, 1 + 8 (t - 1), 32 h, 32 w]. temb[B]: of timestep_conditioning, the noise that is
  // left in the latents, from 0 to 1.
  Tensor decode(const Tensor& z, const Tensor& temb = {}, std::optional<bool> causal = {}) const;
  // decode() of which nothing is kept: runs of frames, or rows of tiles of all frames. Each part is freed once it was
  // taken.
  void decode_in_parts(const Tensor& z, const TakeVideoPart& take, const Tensor& temb = {},
                       std::optional<bool> causal = {}) const;
  // In tiles whatever the size.
  Tensor tiled_encode(const Tensor& x, std::optional<bool> causal = {}) const;  // moments
  Tensor tiled_decode(const Tensor& z, const Tensor& temb = {}, std::optional<bool> causal = {}) const;
  // There and back, by a sample of the latents or by their means.
  Tensor forward(const Tensor& sample, const Tensor& temb = {}, bool sample_posterior = false,
                 std::optional<bool> encoder_causal = {}, std::optional<bool> decoder_causal = {},
                 const Generator& generator = {}) const;

 private:
  struct Call {  // what the decoder is told besides latents
    Tensor temb;
    bool causal;
  };
  Call call_of(const char* method, const Tensor& z, const Tensor& temb, std::optional<bool> causal) const;
  Tensor encoded(const Tensor& x, bool causal) const;
  Tensor encoded_in_tiles(const Tensor& x, bool causal) const;
  Tensor encoded_by_frames(const Tensor& x, bool causal) const;
  Tensor decoded(const Tensor& z, const Call& call) const;
  Tensor decoded_in_tiles(const Tensor& z, const Call& call) const;
  bool has_large_pictures(const Tensor& x, int64_t ratio) const;  // for `ratio` pixels a number
  bool decodes_by_frames(const Tensor& z) const;
  // take(a part, the share that is done): rows of tiles, runs of frames
  template <class Take> void decode_rows(const Tensor& z, const Call& call, const Take& take) const;
  template <class Take> void decode_frames(const Tensor& z, const Call& call, const Take& take) const;
};

}  // namespace sf::models
