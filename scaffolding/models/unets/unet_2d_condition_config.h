// UNet2DConditionModel's config.
#pragma once
#include "scaffolding/io/config.h"

namespace sf::models {

// diffusers' fields. Object: a number, or a list with one for each level.
struct UNet2DConditionConfig {
  io::Object sample_size;  // None, a number or [H, W]: the pipelines' default size in latents, nothing to the model
  int64_t in_channels = 4, out_channels = 4;
  bool center_input_sample = false, flip_sin_to_cos = true;
  int64_t freq_shift = 0;
  std::vector<std::string> down_block_types{"CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D",
                                            "DownBlock2D"};
  std::optional<std::string> mid_block_type = "UNetMidBlock2DCrossAttn";
  std::vector<std::string> up_block_types{"UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D",
                                          "CrossAttnUpBlock2D"};
  io::Object only_cross_attention = false;
  std::vector<int64_t> block_out_channels{320, 640, 1280, 1280};
  io::Object layers_per_block = int64_t(2);
  int64_t downsample_padding = 1;
  double mid_block_scale_factor = 1, dropout = 0;
  std::string act_fn = "silu";
  std::optional<int64_t> norm_num_groups = 32;
  double norm_eps = 1e-5;
  io::Object cross_attention_dim = int64_t(1280);
  io::Object transformer_layers_per_block = int64_t(1);  // of a level: a number, or a list with one for each layer
  io::Object reverse_transformer_layers_per_block;  // of the up levels, from the lowest; None: the same from the back
  std::optional<int64_t> encoder_hid_dim;
  std::optional<std::string> encoder_hid_dim_type;
  io::Object attention_head_dim = int64_t(8);  // the number of heads, by a mistake that all configs keep
  io::Object num_attention_heads;              // where it is given, instead
  bool dual_cross_attention = false, use_linear_projection = false;
  std::optional<std::string> class_embed_type, addition_embed_type;
  std::optional<int64_t> addition_time_embed_dim, num_class_embeds;
  bool upcast_attention = false;
  std::string resnet_time_scale_shift = "default";
  bool resnet_skip_time_act = false;
  double resnet_out_scale_factor = 1;
  std::string time_embedding_type = "positional";
  std::optional<int64_t> time_embedding_dim;
  std::optional<std::string> time_embedding_act_fn, timestep_post_act;
  std::optional<int64_t> time_cond_proj_dim;
  int64_t conv_in_kernel = 3, conv_out_kernel = 3;
  std::optional<int64_t> projection_class_embeddings_input_dim;
  std::string attention_type = "default";
  bool class_embeddings_concat = false;
  std::optional<bool> mid_block_only_cross_attention;
  std::optional<std::string> cross_attention_norm;
  int64_t addition_embed_type_num_heads = 64;
  io::Fields fields();
};

}  // namespace sf::models
