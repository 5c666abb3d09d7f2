// UNet2DConditionModel: the denoiser of Stable Diffusion 1.x, 2.x and XL.
#pragma once
#include "scaffolding/models/parts/embeddings.h"
#include "scaffolding/models/parts/packed_projections.h"
#include "scaffolding/models/unets/unet_2d_blocks.h"
#include "scaffolding/nn/embedding.h"
#include "scaffolding/nn/streaming/residence.h"

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

struct UNet2DConditionModel : ConfiguredModel<UNet2DConditionConfig>, PackedPart, nn::ReadsBelow {
  static constexpr const char* kName = "UNet2DConditionModel";
  nn::Conv2d conv_in;
  TimestepEmbedding time_embedding;
  std::optional<nn::Linear> encoder_hid_proj;
  std::shared_ptr<nn::Module> class_embedding;  // an Embedding, TimestepEmbedding, Linear or Identity, or absent
  std::shared_ptr<nn::Module>
      add_embedding;  // a TextTimeEmbedding ("text"), a TimestepEmbedding ("text_time"), or absent
  nn::ModuleList<UNetDownBlock> down_blocks;
  nn::ModuleList<UNetUpBlock> up_blocks;
  std::optional<UNetMidBlock2DCrossAttn> mid_block;
  nn::GroupNorm conv_norm_out;
  nn::Conv2d conv_out;
  SF_MODULE(UNet2DConditionModel, conv_in, time_embedding, encoder_hid_proj, class_embedding, add_embedding,
            down_blocks, up_blocks, mid_block, conv_norm_out, conv_out)

  explicit UNet2DConditionModel(Config config = {});

  // The prediction [B, out_channels, H, W] for sample[B, in_channels, H, W] at a timestep [] or [B].
  // H and W of any size.
  //   encoder_hidden_states[B, M, cross_attention_dim]
  //   class_labels[B] (class_embed_type None, "timestep"), [B, dim] (the others)
  //   timestep_cond[B, time_cond_proj_dim]: the guidance scale of distilled models, embedded
  //   attention_mask, encoder_attention_mask: [B, tokens], 1 where a token is seen; [B, 1, tokens] is added to the
  //   scores text_embeds[B, dim], time_ids[B, n]: of addition_embed_type "text_time"
  //   down_block_additional_residuals, mid_block_additional_residual: a ControlNet's, added to the skips and to the
  //   middle down_intrablock_additional_residuals: a T2I-Adapter's, one for each level
  Tensor forward(const Tensor& sample, const Tensor& timestep, const Tensor& encoder_hidden_states,
                 const Tensor& class_labels = {}, const Tensor& timestep_cond = {}, const Tensor& attention_mask = {},
                 const Tensor& encoder_attention_mask = {}, const Tensor& text_embeds = {}, const Tensor& time_ids = {},
                 const Tensors& down_block_additional_residuals = {}, const Tensor& mid_block_additional_residual = {},
                 const Tensors& down_intrablock_additional_residuals = {}) const;

  bool pack() override;                 // the residual blocks' time projections
  Tensors read_below() const override;  // the same, and what is added to them

 private:
  std::vector<const ResnetBlock2D*> timed_blocks() const;  // the residual blocks, in one order
  Tensor embed(const Tensor& sample, const Tensor& timestep, const Tensor& class_labels, const Tensor& timestep_cond,
               const Tensor& encoder_hidden_states, const Tensor& text_embeds, const Tensor& time_ids) const;
  TimestepOptions timestep_options() const;
};

}  // namespace sf::models
