// Transformer2DModel: transformer blocks over the pixels of a picture. A model of its own, and the attention of UNets.
#pragma once
#include "scaffolding/models/parts/transformer_block.h"
#include "scaffolding/nn/conv.h"

namespace sf::models {

struct Transformer2DConfig {
  int64_t num_attention_heads = 16, attention_head_dim = 88;
  std::optional<int64_t> in_channels, out_channels;
  int64_t num_layers = 1;
  double dropout = 0;
  int64_t norm_num_groups = 32;
  std::optional<int64_t> cross_attention_dim;
  bool attention_bias = false;
  std::optional<int64_t> sample_size, num_vector_embeds, patch_size;
  std::string activation_fn = "geglu";
  std::optional<int64_t> num_embeds_ada_norm;
  bool use_linear_projection = false, only_cross_attention = false, double_self_attention = false,
       upcast_attention = false;
  std::string norm_type = "layer_norm";
  bool norm_elementwise_affine = true;
  double norm_eps = 1e-5;
  std::string attention_type = "default";
  std::optional<int64_t> caption_channels;
  std::optional<double> interpolation_scale;
  std::optional<bool> use_additional_conditions;
  io::Fields fields();
};

// Of diffusers' inputs the continuous one: pictures [B, in_channels, H, W]. NotSupported for patches
// (DiTTransformer2DModel has them) and for vector embeddings.
struct Transformer2DModel : ConfiguredModel<Transformer2DConfig> {
  static constexpr const char* kName = "Transformer2DModel";
  nn::GroupNorm norm;
  std::optional<nn::Linear> linear_in, linear_out;  // proj_in and proj_out with use_linear_projection
  std::optional<nn::Conv2d> conv_in, conv_out;      // and without, by 1x1 convolutions
  nn::ModuleList<BasicTransformerBlock> transformer_blocks;
  const char* type() const override { return kName; }
  void visit(nn::Visitor& v) override;
  template <class... A> auto operator()(A&&... a) const { return call_module(*this, std::forward<A>(a)...); }

  explicit Transformer2DModel(Config config = {});
  // hidden_states[B, in_channels, H, W] -> the same shape. encoder_hidden_states[B, M, cross_attention_dim], absent:
  // the pixels themselves; timestep: whole numbers [] or [B], for ada_norm; masks as attention_bias takes them.
  Tensor forward(const Tensor& hidden_states, const Tensor& encoder_hidden_states = {}, const Tensor& timestep = {},
                 const Tensor& attention_mask = {}, const Tensor& encoder_attention_mask = {}) const;
};

// A config without the fields of Transformer2DModel that are not among `own` and say nothing: diffusers once had one
// class for all of these models, whose files name all fields.
io::Object without_unused_fields(const io::Object& config, const io::Fields& own);

}  // namespace sf::models
