// The half of a UNet with text that goes down, which UNet2DConditionModel and ControlNetModel have alike: the layers,
// and what they make of timestep, class, sizes and pooled text.
#pragma once
#include "scaffolding/models/parts/embeddings.h"
#include "scaffolding/models/parts/packed_projections.h"
#include "scaffolding/models/unets/unet_2d_blocks.h"
#include "scaffolding/models/unets/unet_2d_condition_config.h"
#include "scaffolding/nn/embedding.h"
#include "scaffolding/nn/streaming/residence.h"

namespace sf::models {

// The fields that are one number, or a list with one for each level. `who`: the model, for errors.
struct UNetLevels {
  std::vector<int64_t> layers, heads, cross_attention_dim, only_cross_attention;
  std::vector<io::Object> down_transformers, up_transformers;  // a number, or a list with one for each layer

  UNetLevels(const char* who, const UNet2DConditionConfig& config);
};

// The config, or a ValueError or NotSupported naming `who` and the field. Of up blocks as many as of down blocks.
UNet2DConditionConfig checked_unet_config(const char* who, UNet2DConditionConfig config);

int64_t time_embed_dim(const UNet2DConditionConfig& config);
UNetBlockOptions unet_block_options(const UNet2DConditionConfig& config, const UNetLevels& levels, size_t level);
// Of a level's entry of `field` one for each layer.
std::vector<int64_t> transformer_layers_of(const char* who, const char* field, const io::Object& level, int64_t layers);
nn::ConvOptions conv_of_same_size(int64_t kernel);

struct UNet2DConditionEncoder : PackedPart, nn::ReadsBelow {
  nn::Conv2d conv_in;
  TimestepEmbedding time_embedding;
  std::shared_ptr<nn::Module> class_embedding;  // an Embedding, TimestepEmbedding, Linear or Identity, or absent
  std::shared_ptr<nn::Module>
      add_embedding;  // a TextTimeEmbedding ("text"), a TimestepEmbedding ("text_time"), or absent
  nn::ModuleList<UNetDownBlock> down_blocks;
  std::optional<UNetMidBlock2DCrossAttn> mid_block;

  // Of a config that was checked.
  UNet2DConditionEncoder(const char* who, const UNet2DConditionConfig& config);

  bool pack() override;                 // the residual blocks' time projections
  Tensors read_below() const override;  // the same, and what is added to them

 protected:
  // The residual blocks, in the order in which they run.
  virtual std::vector<const ResnetBlock2D*> timed_blocks() const;
  // ValueError for a sample, a timestep or states of other shapes than the network takes.
  void check_inputs(const Tensor& sample, const Tensor& timestep, const Tensor& encoder_hidden_states) const;
  // What the residual blocks are told: timestep, class, sizes and pooled text in one vector a sample.
  Tensor embed(const Tensor& sample, const Tensor& timestep, const Tensor& class_labels, const Tensor& timestep_cond,
               const Tensor& encoder_hidden_states, const Tensor& text_embeds, const Tensor& time_ids) const;

 private:
  const char* who_;
  UNet2DConditionConfig config_;
};

}  // namespace sf::models
