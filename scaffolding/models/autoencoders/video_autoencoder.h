// VideoEncoder and VideoDecoder of the small video family (scaffolding.nn.video in Python): videos to latents and back,
// for diffusion in fewer pixels. Height and width shrink, frames stay.
#pragma once
#include "scaffolding/models/unets/unet_3d_blocks.h"

namespace sf::models::video {

struct VideoEncoderConfig {
  int64_t in_channels = 3, latent_channels = 4;
  int64_t model_channels = 32;                 // of the first level
  std::vector<int64_t> channel_mult{1, 2, 4};  // of each level, times model_channels; each is half as large
  int64_t num_res_blocks = 1, num_heads = 4, norm_num_groups = 8;
  double scaling_factor = 1;  // what latents are multiplied by to have about variance 1
  io::Fields fields();
};

struct VideoEncoder : ConfiguredModel<VideoEncoderConfig> {
  static constexpr const char* kName = "VideoEncoder";
  nn::Conv3d conv_in;
  nn::ModuleList<VideoDownBlock> down_blocks;
  nn::ModuleList<VideoLayer> mid_layers;
  nn::GroupNorm conv_norm_out;
  nn::Conv3d conv_out;
  SF_MODULE(VideoEncoder, conv_in, down_blocks, mid_layers, conv_norm_out, conv_out)
  explicit VideoEncoder(Config config = {});
  // video[B, in_channels, T, H, W] -> moments of a DiagonalGaussianDistribution (vae.h)
  // [B, 2 latent_channels, T, H / spatial_factor(), W / spatial_factor()].
  Tensor forward(const Tensor& video) const;
  int64_t spatial_factor() const { return int64_t(1) << (options.channel_mult.size() - 1); }
};

struct VideoDecoderConfig {
  int64_t out_channels = 3, latent_channels = 4, model_channels = 32;
  std::vector<int64_t> channel_mult{1, 2, 4};
  int64_t num_res_blocks = 1, num_heads = 4, norm_num_groups = 8;
  io::Fields fields();
};

struct VideoDecoder : ConfiguredModel<VideoDecoderConfig> {
  static constexpr const char* kName = "VideoDecoder";
  nn::Conv3d conv_in;
  nn::ModuleList<VideoLayer> mid_layers;
  nn::ModuleList<VideoUpBlock> up_blocks;
  nn::GroupNorm conv_norm_out;
  nn::Conv3d conv_out;
  SF_MODULE(VideoDecoder, conv_in, mid_layers, up_blocks, conv_norm_out, conv_out)
  explicit VideoDecoder(Config config = {});
  // latents[B, latent_channels, T, h, w] -> [B, out_channels, T, spatial_factor() h, spatial_factor() w].
  Tensor forward(const Tensor& latents) const;
  int64_t spatial_factor() const { return int64_t(1) << (options.channel_mult.size() - 1); }
};

}  // namespace sf::models::video
