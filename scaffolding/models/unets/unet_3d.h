// UNet3D and SimpleUNet3D: denoisers of small videos [B, C, T, H, W], told a timestep and a text. Height and width
// shrink on the way down, frames stay. What a layer of the way down gives, the layer of the same place on the way up
// sees.
#pragma once
#include "scaffolding/models/unets/unet_3d_blocks.h"

namespace sf::models::video {

struct UNet3DConfig {
  int64_t in_channels = 3;
  std::optional<int64_t> out_channels;         // absent: in_channels
  int64_t model_channels = 64;                 // of the first level
  std::vector<int64_t> channel_mult{1, 2, 4};  // of each level, times model_channels; each is half as large
  int64_t num_res_blocks = 2;                  // of each level
  io::Object attention_levels;                 // numbers of the levels with attention, from 0; None: all but the first
  int64_t num_heads = 4;
  std::optional<int64_t> context_dim = 256;  // of the text's vectors; absent: it is told no text
  int64_t norm_num_groups = 8;
  double dropout = 0;
  io::Fields fields();
};

struct SimpleUNet3DConfig {
  int64_t in_channels = 3;
  std::optional<int64_t> out_channels;  // absent: in_channels
  int64_t model_channels = 64;
  int64_t num_heads = 4;
  std::optional<int64_t> context_dim = 256;
  int64_t norm_num_groups = 8;
  io::Fields fields();
};

// The levels of a denoiser.
struct UNet3DPlan {
  int64_t in_channels, out_channels, model_channels;
  std::vector<int64_t> channels;  // of each level
  std::vector<bool> attention;    // of each level
  int64_t num_res_blocks, middle_channels;
  bool middle_is_smaller;  // the last level is halved too
  LevelOptions options;
};

class UNet3DBase : public Model {
 public:
  VideoTimestepEmbedding time_embedding;
  nn::Conv3d conv_in;
  nn::ModuleList<VideoDownBlock> down_blocks;
  nn::ModuleList<VideoLayer> mid_layers;
  nn::ModuleList<VideoUpBlock> up_blocks;
  nn::GroupNorm conv_norm_out;
  nn::Conv3d conv_out;
  // sample[B, in_channels, T, H, W], sides that spatial_factor() divides; timestep[] or [B], whole or fractional;
  // encoder_hidden_states[B, M, context_dim]; encoder_attention_mask[B, M]: 0 where the text is padding
  // -> [B, out_channels, T, H, W].
  Tensor forward(const Tensor& sample, const Tensor& timestep, const Tensor& encoder_hidden_states = {},
                 const Tensor& encoder_attention_mask = {}) const;
  int64_t spatial_factor() const;  // pixels for each of the smallest level

 protected:
  UNet3DBase(const char* who, const UNet3DPlan& plan);

 private:
  const char* who_;
};

struct UNet3D : UNet3DBase {
  static constexpr const char* kName = "UNet3D";
  using Config = UNet3DConfig;
  Config options;
  SF_MODULE(UNet3D, time_embedding, conv_in, down_blocks, mid_layers, up_blocks, conv_norm_out, conv_out)
  explicit UNet3D(Config config = {});
  io::Fields fields() override { return options.fields(); }
};

// Two levels of one layer each, the smaller with attention, and a bottleneck of four times the channels.
struct SimpleUNet3D : UNet3DBase {
  static constexpr const char* kName = "SimpleUNet3D";
  using Config = SimpleUNet3DConfig;
  Config options;
  SF_MODULE(SimpleUNet3D, time_embedding, conv_in, down_blocks, mid_layers, up_blocks, conv_norm_out, conv_out)
  explicit SimpleUNet3D(Config config = {});
  io::Fields fields() override { return options.fields(); }
};

}  // namespace sf::models::video
