// BasicTransformerBlock: the block of UNets' transformers, under diffusers' names and keys.
#pragma once
#include "scaffolding/models/model.h"
#include "scaffolding/models/parts/attention.h"
#include "scaffolding/models/parts/feed_forward.h"
#include "scaffolding/models/parts/norm.h"

namespace sf::models {

struct TransformerBlockOptions {
  int64_t num_attention_heads = 8, attention_head_dim = 64;
  double dropout = 0;
  std::optional<int64_t> cross_attention_dim;  // absent: no second attention, unless double_self_attention
  std::string activation_fn = "geglu";
  std::optional<int64_t> num_embeds_ada_norm;
  bool attention_bias = false, only_cross_attention = false, double_self_attention = false, upcast_attention = false;
  bool norm_elementwise_affine = true;
  std::string norm_type = "layer_norm";  // or ada_norm
  double norm_eps = 1e-5;
};

// Self-attention, cross-attention, feed-forward, each behind a norm and beside a residual. Computed again in the
// backward pass where checkpointing is on.
struct BasicTransformerBlock : CheckpointedModule {
  bool only_cross_attention;
  TransformerNorm norm1;
  Attention attn1;
  std::optional<TransformerNorm> norm2;
  std::optional<Attention> attn2;
  TransformerNorm norm3;
  FeedForward ff;
  SF_MODULE(BasicTransformerBlock, norm1, attn1, norm2, attn2, norm3, ff)

  BasicTransformerBlock(const char* who, int64_t dim, const TransformerBlockOptions& options);
  // hidden_states[B, N, dim], encoder_hidden_states[B, M, cross_attention_dim]; masks as Attention takes them;
  // timestep: whole numbers [] or [B], for ada_norm.
  Tensor forward(const Tensor& hidden_states, const Tensor& attention_mask = {},
                 const Tensor& encoder_hidden_states = {}, const Tensor& encoder_attention_mask = {},
                 const Tensor& timestep = {}) const;

 private:
  Tensor compute(const Tensor& x, const Tensor& mask, const Tensor& context, const Tensor& context_mask,
                 const Tensor& timestep) const;
};

}  // namespace sf::models
