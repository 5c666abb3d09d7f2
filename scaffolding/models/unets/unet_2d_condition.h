// UNet2DConditionModel: the denoiser of Stable Diffusion 1.x, 2.x and XL.
#pragma once
#include "scaffolding/models/unets/unet_2d_condition_encoder.h"

namespace sf::models {

struct UNet2DConditionModel : ConfiguredModel<UNet2DConditionConfig>, UNet2DConditionEncoder {
  static constexpr const char* kName = "UNet2DConditionModel";
  std::optional<nn::Linear> encoder_hid_proj;
  nn::ModuleList<UNetUpBlock> up_blocks;
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

 protected:
  std::vector<const ResnetBlock2D*> timed_blocks() const override;
};

}  // namespace sf::models
