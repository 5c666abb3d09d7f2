// What the small video family (scaffolding.nn.video in Python) is made of: networks over videos [B, C, T, H, W] that
// are told a timestep and a text. Each is a model of its own too, with a config and files. The names are the product
// documents'; a namespace keeps them apart from diffusers' parts of the same names.
#pragma once
#include "scaffolding/models/model.h"
#include "scaffolding/models/parts/attention.h"
#include "scaffolding/models/parts/kept_table.h"
#include "scaffolding/nn/conv.h"
#include "scaffolding/nn/dropout.h"
#include "scaffolding/nn/norm.h"

namespace sf::models::video {

struct VideoTimestepEmbeddingConfig {
  int64_t channels = 64;         // of the sines and cosines
  int64_t time_embed_dim = 256;  // of the result
  io::Fields fields();
};

// Cosines and sines of a timestep through two linear layers with SiLU between. scaffolding.nn.video calls it
// TimestepEmbedding, as which diffusers' UNets print a part of theirs.
struct VideoTimestepEmbedding : ConfiguredModel<VideoTimestepEmbeddingConfig> {
  static constexpr const char* kName = "VideoTimestepEmbedding";
  nn::Linear linear_1, linear_2;
  SF_MODULE(VideoTimestepEmbedding, linear_1, linear_2)
  explicit VideoTimestepEmbedding(Config config = {});
  // timestep[] or [B], whole or fractional -> [B, time_embed_dim] in dtype, absent: the model's.
  Tensor forward(const Tensor& timestep, std::optional<DType> dtype = {}) const;
};

struct ResBlock3DConfig {
  int64_t in_channels = 64;
  std::optional<int64_t> out_channels;          // absent: in_channels
  std::optional<int64_t> time_embed_dim = 256;  // absent: it is told no timestep
  int64_t norm_num_groups = 8;
  double dropout = 0;
  io::Fields fields();
};

// norm, SiLU, 3x3x3 convolution, twice, beside a shortcut; a timestep's embedding is added in the middle.
struct ResBlock3D : ConfiguredModel<ResBlock3DConfig> {
  static constexpr const char* kName = "ResBlock3D";
  nn::GroupNorm norm1;
  nn::Conv3d conv1;
  std::optional<nn::Linear> time_emb_proj;
  nn::GroupNorm norm2;
  nn::Dropout dropout;
  nn::Conv3d conv2;
  std::optional<nn::Conv3d> conv_shortcut;  // where the number of channels changes
  SF_MODULE(ResBlock3D, norm1, conv1, time_emb_proj, norm2, dropout, conv2, conv_shortcut)
  explicit ResBlock3D(Config config = {});
  // hidden_states[B, in_channels, T, H, W], temb[B, time_embed_dim] -> [B, out_channels, T, H, W].
  Tensor forward(const Tensor& hidden_states, const Tensor& temb = {}) const;
};

struct SpatialTemporalAttentionConfig {
  int64_t channels = 64, num_heads = 4;
  std::optional<int64_t> context_dim = 256;  // of the text's vectors; absent: no attention to a text
  io::Fields fields();
};

// Attention among the pixels of each frame, then among the frames of each pixel, then of all pixels to the text, each
// behind a layer norm and beside a residual. Where a frame stands in time is told by sines and cosines.
struct SpatialTemporalAttention : ConfiguredModel<SpatialTemporalAttentionConfig> {
  static constexpr const char* kName = "SpatialTemporalAttention";
  nn::LayerNorm spatial_norm;
  Attention spatial_attn;
  nn::LayerNorm temporal_norm;
  Attention temporal_attn;
  std::optional<nn::LayerNorm> cross_norm;
  std::optional<Attention> cross_attn;
  SF_MODULE(SpatialTemporalAttention, spatial_norm, spatial_attn, temporal_norm, temporal_attn, cross_norm, cross_attn)
  explicit SpatialTemporalAttention(Config config = {});
  // hidden_states[B, channels, T, H, W], encoder_hidden_states[B, M, context_dim], encoder_attention_mask[B, M]: 0
  // where the text is padding -> the shape of hidden_states.
  Tensor forward(const Tensor& hidden_states, const Tensor& encoder_hidden_states = {},
                 const Tensor& encoder_attention_mask = {}) const;

 private:
  KeptTable positions_;
};

// What the blocks of one network share.
struct LevelOptions {
  std::optional<int64_t> time_embed_dim, context_dim;
  int64_t num_heads = 4, norm_num_groups = 8;
  double dropout = 0;
};

// A residual block, and attention behind it where the level has that.
struct VideoLayer : CheckpointedModule {
  ResBlock3D resnet;
  std::optional<SpatialTemporalAttention> attention;
  SF_MODULE(VideoLayer, resnet, attention)
  VideoLayer(int64_t in_channels, int64_t out_channels, bool has_attention, const LevelOptions& options);
  Tensor forward(const Tensor& hidden_states, const Tensor& temb = {}, const Tensor& encoder_hidden_states = {},
                 const Tensor& encoder_attention_mask = {}) const;
};

struct LevelShape {
  int64_t in_channels = 0, out_channels = 0;
  std::vector<int64_t> skip_channels;  // on the way up: of each layer, or as many zeros
  bool attention = false, resample = true;
};

// Down one level: the layers, then a convolution that halves height and width.
struct VideoDownBlock : nn::Module {
  nn::ModuleList<VideoLayer> layers;
  std::optional<nn::Conv3d> downsampler;
  SF_MODULE(VideoDownBlock, layers, downsampler)
  VideoDownBlock(const LevelShape& shape, int64_t num_layers, const LevelOptions& options);
  // The output of each layer, and at last what goes on.
  Tensors forward(const Tensor& hidden_states, const Tensor& temb = {}, const Tensor& encoder_hidden_states = {},
                  const Tensor& encoder_attention_mask = {}) const;
};

// Up one level: height and width doubled by repeating pixels and a convolution, then the layers, each of which sees the
// last of the skips that are left, channels behind channels.
struct VideoUpBlock : nn::Module {
  std::optional<nn::Conv3d> upsampler;
  nn::ModuleList<VideoLayer> layers;
  SF_MODULE(VideoUpBlock, upsampler, layers)
  VideoUpBlock(const LevelShape& shape, const LevelOptions& options);
  // skips: as many as layers, or none.
  Tensor forward(const Tensor& hidden_states, const Tensors& skips = {}, const Tensor& temb = {},
                 const Tensor& encoder_hidden_states = {}, const Tensor& encoder_attention_mask = {}) const;
};

// Two layers in the middle, attention between them.
nn::ModuleList<VideoLayer> middle_layers(int64_t in_channels, int64_t channels, const LevelOptions& options);

// A convolution that keeps the size.
nn::Conv3d conv_3x3x3(int64_t in_channels, int64_t out_channels);

// Weights of a layer that ends a branch or a network: a tenth of the usual size, so that a network begins as nearly
// nothing but its shortcuts, and yet gradients reach all layers from the first step on, as they would not past zeros.
void begin_small(const Tensor& weight);

// ValueError for sizes that a network over videos cannot have.
void check_levels(const char* who, int64_t model_channels, const std::vector<int64_t>& channel_mult,
                  int64_t num_res_blocks, int64_t norm_num_groups);
void check_heads(const char* who, int64_t num_heads, int64_t channels);
// hidden[B, channels, T, H, W] with sides that `divisor` divides.
void check_video(const char* who, const char* name, const Tensor& video, int64_t channels, int64_t divisor = 1);

}  // namespace sf::models::video
