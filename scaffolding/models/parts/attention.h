// Attention between tokens [B, N, C], under diffusers' names and keys, and what every attention has in common.
#pragma once
#include "scaffolding/models/parts/packed_projections.h"
#include "scaffolding/models/parts/projections.h"
#include "scaffolding/nn/norm.h"

namespace sf::models {

// Cosines and sines of positions, as apply_rotary_emb takes them: [N, R], or what broadcasts to [B, heads, N, R].
struct RotaryPositions {
  Tensor cos, sin;
  bool interleaved = true;
};

// A norm over the channels of each head: of queries, or of keys. None: they are left as they are.
class HeadNorm {
 public:
  HeadNorm() = default;
  HeadNorm(const nn::RMSNorm* norm) : rms_(norm) {}
  HeadNorm(const nn::LayerNorm* norm) : layer_(norm) {}
  Tensor operator()(const Tensor& x) const { return rms_ ? (*rms_)(x) : layer_ ? (*layer_)(x) : x; }

 private:
  const nn::RMSNorm* rms_ = nullptr;
  const nn::LayerNorm* layer_ = nullptr;
};

struct AttendOptions {
  // broadcasts to [B, heads, N, M], or to [B, N, M] for all heads: bool (true attends), or added to the scores
  Tensor mask = {};
  bool causal = false;
  double dropout = 0;                // of attention weights
  std::optional<double> scale = {};  // of the scores; absent: 1 / sqrt(channels of a head)
  HeadNorm norm_q = {}, norm_k = {};
  const RotaryPositions* rotary = nullptr;  // of queries and keys, after their norms
  int64_t kv_heads = 0;  // of keys and values, each for as many neighbouring heads of the queries; 0: one for each
};
// Attention of queries [B, N, heads * D] to keys and values [B, M, kv_heads * D], the heads side by side in the result
// [B, N, heads * D]. Two streams of tokens that attend to each other jointly are one here, behind each other along N.
Tensor attend(const Tensor& q, const Tensor& k, const Tensor& v, int64_t heads, const AttendOptions& options = {});

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
  bool qk_layer_norm = false;     // diffusers' qk_norm="layer_norm": of each head's queries and keys, with eps
};

// Of a transformer whose config has diffusers' fields.
template <class Config>
AttentionOptions attention_options_of(const Config& c, std::optional<int64_t> cross_attention_dim = {}) {
  return {.cross_attention_dim = cross_attention_dim,
          .heads = c.num_attention_heads,
          .dim_head = c.attention_head_dim,
          .dropout = c.dropout,
          .bias = c.attention_bias,
          .upcast_attention = c.upcast_attention};
}

struct Attention : nn::Module, PackedPart {
  int64_t heads;
  double rescale_output_factor;
  bool residual_connection;
  std::optional<nn::GroupNorm> group_norm;
  std::optional<nn::LayerNorm> norm_q, norm_k;
  nn::Linear to_q, to_k, to_v;
  nn::ModuleTuple<nn::Linear, nn::Dropout> to_out;
  SF_MODULE(Attention, group_norm, norm_q, norm_k, to_q, to_k, to_v, to_out)

  Attention(int64_t query_dim, const AttentionOptions& options);
  // hidden_states[B, N, C], or a picture [B, C, H, W] whose pixels are the tokens. encoder_hidden_states[B, M,
  // cross_attention_dim], absent: the tokens themselves. attention_mask broadcasts to [B, heads, N, M], or to [B, N, M]
  // for all heads, and is added to the scores. rotary_cos and rotary_sin: RotaryPositions of the tokens, interleaved.
  Tensor forward(const Tensor& hidden_states, const Tensor& encoder_hidden_states = {},
                 const Tensor& attention_mask = {}, const Tensor& rotary_cos = {}, const Tensor& rotary_sin = {}) const;
  // residual + (*this)(...), which the last product adds where nobody looks at the parts.
  Tensor beside(const Tensor& residual, const ProjectionInput& hidden_states, const Tensor& encoder_hidden_states = {},
                const Tensor& attention_mask = {}) const;
  // Whether beside reads rows in float8: its projections (with an encoder's: queries' alone) all do.
  bool takes_float8(bool has_encoder) const;
  bool pack() override;  // queries, keys and values

 private:
  bool is_bare() const;  // nothing but projections and attention, which nobody sees called
  Tensor compute(const ProjectionInput& tokens, const Tensor& encoder_hidden_states, const Tensor& attention_mask,
                 const Tensor& residual, const RotaryPositions* rotary = nullptr) const;
};

// What is added to scores for a mask [B, M] of 1 for what is seen and 0 for what is not: [B, 1, M] of 0 and -10000. A
// mask of three dimensions is that already, and an absent one stays so.
Tensor attention_bias(const char* who, const char* name, const Tensor& mask, DType dtype);

}  // namespace sf::models
