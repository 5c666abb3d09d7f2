// Attention as torch.nn has it. Masks: a bool mask marks what may not be attended to,
// a floating one is added to the scores.
#pragma once
#include "scaffolding/nn/dropout.h"
#include "scaffolding/nn/linear.h"
#include "scaffolding/nn/norm.h"

namespace sf::nn {

struct AttentionOptions {
  double dropout = 0;  // of attention weights, in training
  bool bias = true;
  bool add_bias_kv = false;           // a trained entry at the end of the keys and values
  bool add_zero_attn = false;         // an entry of zeros at their end
  std::optional<int64_t> kdim, vdim;  // sizes of key and value where they are not embed_dim
  bool batch_first = false;           // [N, L, E] instead of [L, N, E]
  TensorOptions tensor = {};
};
struct AttentionMasks {
  Tensor key_padding_mask;  // [N, S] or [S]
  Tensor attn_mask;         // [L, S] or [N * num_heads, L, S]
  bool is_causal = false;   // a hint that attn_mask is the causal one
};

struct MultiheadAttention : Module {
  int64_t embed_dim, num_heads, head_dim, kdim, vdim;
  double dropout;
  bool add_zero_attn, batch_first;
  Tensor in_proj_weight;  // [3 E, E], where key and value have embed_dim too; else the next three
  Tensor q_proj_weight, k_proj_weight, v_proj_weight;  // [E, E], [E, kdim], [E, vdim]
  Tensor in_proj_bias;                                 // [3 E], or absent
  Tensor bias_k, bias_v;                               // [1, 1, E], or absent
  NonDynamicallyQuantizableLinear out_proj;
  SF_MODULE(MultiheadAttention, in_proj_weight, q_proj_weight, k_proj_weight, v_proj_weight, in_proj_bias, bias_k,
            bias_v, out_proj)

  MultiheadAttention(int64_t embed_dim, int64_t num_heads, const AttentionOptions& options = {});
  // query[L, N, E], key[S, N, kdim], value[S, N, vdim], or without N, or with N first. Returns the output, of query's
  // shape, and the attention weights [N, L, S] ([N, num_heads, L, S] without averaging), absent unless asked for.
  std::tuple<Tensor, Tensor> forward(const Tensor& query, const Tensor& key, const Tensor& value,
                                     const AttentionMasks& masks = {}, bool need_weights = true,
                                     bool average_attn_weights = true) const;
  Value forward_value(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& key_padding_mask,
                      bool need_weights, const Tensor& attn_mask, bool average_attn_weights, bool is_causal) const;
  void reset_parameters();
};

struct TransformerOptions {
  int64_t dim_feedforward = 2048;
  double dropout = 0.1;
  std::string activation = "relu";  // or "gelu"
  double layer_norm_eps = 1e-5;
  bool batch_first = false;
  bool norm_first = false;
  bool bias = true;
  TensorOptions tensor = {};
};

// Self-attention and two linear layers, each with a residual and a LayerNorm (Vaswani et al. 2017).
struct TransformerEncoderLayer : Module {
  MultiheadAttention self_attn;
  Linear linear1;
  Dropout dropout;
  Linear linear2;
  LayerNorm norm1, norm2;
  Dropout dropout1, dropout2;
  std::string activation;
  bool norm_first;
  SF_MODULE(TransformerEncoderLayer, self_attn, linear1, dropout, linear2, norm1, norm2, dropout1, dropout2)

  TransformerEncoderLayer(int64_t d_model, int64_t nhead, const TransformerOptions& options = {});
  Tensor forward(const Tensor& src, const Tensor& src_mask = {}, const Tensor& src_key_padding_mask = {},
                 bool is_causal = false) const;
};

}  // namespace sf::nn
