// DiTTransformer2DModel: diffusion with a transformer over patches, told a class label (Peebles and Xie 2022,
// arXiv 2212.09748).
#pragma once
#include "scaffolding/models/model.h"
#include "scaffolding/models/parts/attention.h"
#include "scaffolding/models/parts/feed_forward.h"
#include "scaffolding/models/parts/norm.h"

namespace sf::models {

struct DiTTransformer2DConfig {
  int64_t num_attention_heads = 16, attention_head_dim = 72, in_channels = 4;
  std::optional<int64_t> out_channels;  // absent: in_channels
  int64_t num_layers = 28;
  double dropout = 0;
  int64_t norm_num_groups = 32;
  bool attention_bias = true;
  int64_t sample_size = 32, patch_size = 2;
  std::string activation_fn = "gelu-approximate";
  std::optional<int64_t> num_embeds_ada_norm = 1000;  // classes
  bool upcast_attention = false;
  std::string norm_type = "ada_norm_zero";
  bool norm_elementwise_affine = false;
  double norm_eps = 1e-5;
  io::Fields fields();
};

struct DiTTransformerBlock : CheckpointedModule {
  AdaLayerNormZero norm1;
  Attention attn1;
  TransformerNorm norm3;
  FeedForward ff;
  SF_MODULE(DiTTransformerBlock, norm1, attn1, norm3, ff)
  explicit DiTTransformerBlock(const DiTTransformer2DConfig& c);
  // [B, N, C], [B], [B]
  Tensor forward(const Tensor& hidden_states, const Tensor& timestep, const Tensor& class_labels) const;
};

struct DiTTransformer2DModel : ConfiguredModel<DiTTransformer2DConfig> {
  static constexpr const char* kName = "DiTTransformer2DModel";
  PatchEmbed pos_embed;
  nn::ModuleList<DiTTransformerBlock> transformer_blocks;
  nn::Linear proj_out_1, proj_out_2;
  SF_MODULE(DiTTransformer2DModel, pos_embed, transformer_blocks, proj_out_1, proj_out_2)
  explicit DiTTransformer2DModel(Config config = {});
  // of files from when the class was Transformer2DModel, without its other fields
  static io::Object flat_config(const io::Object& config);
  // hidden_states[B, in_channels, H, W] with sides that patch_size divides; timestep[] or [B]; class_labels[B] below
  // num_embeds_ada_norm, which itself stands for no class -> [B, out_channels, H, W].
  Tensor forward(const Tensor& hidden_states, const Tensor& timestep, const Tensor& class_labels) const;
};

}  // namespace sf::models
