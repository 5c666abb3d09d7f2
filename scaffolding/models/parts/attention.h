// Attention between tokens [B, N, C] and the blocks around it, under diffusers' names and keys.
#pragma once
#include "scaffolding/models/model.h"
#include "scaffolding/models/parts/norm.h"
#include "scaffolding/nn/dropout.h"
#include "scaffolding/nn/linear.h"
#include "scaffolding/nn/norm.h"
#include "scaffolding/ops/quantize/fp8_producers.h"

namespace sf::models {

struct AttentionOptions {
  std::optional<int64_t> cross_attention_dim;  // channels of what is attended to; absent: query_dim
  int64_t heads = 8, dim_head = 64;
  double dropout = 0;
  bool bias = false, out_bias = true;
  std::optional<int64_t> norm_num_groups;  // a group norm of the tokens first, over C
  double eps = 1e-5;
  double rescale_output_factor = 1;
  bool residual_connection = false;
  bool upcast_attention = false;  // scores in float32, which ours always are
};

struct Attention : nn::Module {
  int64_t heads;
  double rescale_output_factor;
  bool residual_connection;
  std::optional<nn::GroupNorm> group_norm;
  nn::Linear to_q, to_k, to_v;
  nn::ModuleTuple<nn::Linear, nn::Dropout> to_out;
  SF_MODULE(Attention, group_norm, to_q, to_k, to_v, to_out)

  Attention(int64_t query_dim, const AttentionOptions& options);
  // hidden_states[B, N, C], or a picture [B, C, H, W] whose pixels are the tokens. encoder_hidden_states[B, M, cross_attention_dim], absent: the
  // tokens themselves. attention_mask broadcasts to [B, heads, N, M], or to [B, N, M] for all heads, and is added to the scores.
  Tensor forward(const Tensor& hidden_states, const Tensor& encoder_hidden_states = {}, const Tensor& attention_mask = {}) const;
  // residual + (*this)(...), which the last product adds where nobody looks at the parts.
  Tensor beside(const Tensor& residual, const Tensor& hidden_states, const Tensor& encoder_hidden_states = {}, const Tensor& attention_mask = {}) const;

  // The same of tokens that are quantised already, whose projections (with an encoder's: queries' alone) are in float8: takes_float8.
  Tensor beside(const Tensor& residual, const Float8Rows& hidden_states, const Tensor& encoder_hidden_states, const Tensor& attention_mask) const;
  bool takes_float8(bool has_encoder) const;

 private:
  Tensors packed(const Tensor& tokens) const;
  // Attention between [B, N, heads * dim_head], and the projection of the result.
  Tensor mix(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& attention_mask, const Tensor& residual) const;
  // Tokens; residual: tokens that are added, or absent.
  Tensor attend(const Tensor& hidden_states, const Tensor& encoder_hidden_states, const Tensor& attention_mask, const Tensor& residual) const;
};

// residual + dropout(linear(x)), in the product's own pass where nobody looks at the two and nothing is dropped. dropout may be null.
Tensor linear_beside(const Tensor& residual, const nn::Linear& linear, const nn::Dropout* dropout, const Tensor& x);

// The widening half of a feed-forward layer: a projection with its activation, twice as wide where that is a gate.
struct FeedForwardProjection : nn::Module {
  nn::Linear proj;
  std::string activation_fn;
  SF_MODULE(FeedForwardProjection, proj)
  FeedForwardProjection(int64_t dim, int64_t inner_dim, const std::string& activation_fn, bool bias);
  Tensor forward(const Tensor& hidden_states) const;
};

struct FeedForwardOptions {
  std::string activation_fn = "geglu";  // or gelu, gelu-approximate, geglu-approximate, swiglu, linear-silu
  double dropout = 0;
  bool bias = true;
  std::optional<int64_t> inner_dim;  // absent: 4 dim
};

struct FeedForward : nn::Module {
  nn::ModuleTuple<FeedForwardProjection, nn::Dropout, nn::Linear> net;
  SF_MODULE(FeedForward, net)
  FeedForward(int64_t dim, const FeedForwardOptions& options = {});
  Tensor forward(const Tensor& hidden_states) const;
  Tensor beside(const Tensor& residual, const Tensor& hidden_states) const;  // residual + (*this)(hidden_states)
  Tensor beside(const Tensor& residual, const Float8Rows& hidden_states) const;
  bool takes_float8() const;  // both projections are in float8, and a GEGLU is between them
};

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

// Self-attention, cross-attention, feed-forward, each behind a norm and beside a residual. Computed again in the backward pass
// where checkpointing is on.
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
  // hidden_states[B, N, dim], encoder_hidden_states[B, M, cross_attention_dim]; masks as Attention takes them; timestep: whole numbers [] or [B], for ada_norm.
  Tensor forward(const Tensor& hidden_states, const Tensor& attention_mask = {}, const Tensor& encoder_hidden_states = {},
                 const Tensor& encoder_attention_mask = {}, const Tensor& timestep = {}) const;

 private:
  Tensor compute(const Tensor& x, const Tensor& mask, const Tensor& context, const Tensor& context_mask, const Tensor& timestep) const;
};

// What is added to scores for a mask [B, M] of 1 for what is seen and 0 for what is not: [B, 1, M] of 0 and -10000. A mask of three
// dimensions is that already, and an absent one stays so.
Tensor attention_bias(const char* who, const char* name, const Tensor& mask, DType dtype);

}  // namespace sf::models
