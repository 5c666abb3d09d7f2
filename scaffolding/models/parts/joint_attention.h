// Attention of two streams of tokens, a picture's and a text's, to both: each has projections and norms of its own
// (Esser et al. 2024, arXiv 2403.03206). Under the names and keys of diffusers' FluxAttention, and of its Attention
// with added projections (Stable Diffusion 3).
#pragma once
#include "scaffolding/models/parts/packed_projections.h"
#include "scaffolding/nn/dropout.h"
#include "scaffolding/nn/linear.h"
#include "scaffolding/nn/norm.h"

namespace sf::models {

struct JointAttentionOptions {
  int64_t heads = 8, dim_head = 64;
  // eps of an RMS norm over the channels of each head, of queries and keys; absent: they are left as they are
  std::optional<double> qk_rms_norm_eps;
  bool has_text = true;           // there is a second stream
  bool context_pre_only = false;  // the text is attended to, and gives nothing back
  bool pre_only = false;          // what attention gives is not projected
};

struct JointAttention : nn::Module, PackedPart {
  int64_t heads;
  nn::Linear to_q, to_k, to_v;
  std::optional<nn::RMSNorm> norm_q, norm_k;
  std::optional<nn::ModuleTuple<nn::Linear, nn::Dropout>> to_out;
  std::optional<nn::Linear> add_q_proj, add_k_proj, add_v_proj;  // of the text
  std::optional<nn::RMSNorm> norm_added_q, norm_added_k;
  std::optional<nn::Linear> to_add_out;
  SF_MODULE(JointAttention, to_q, to_k, to_v, norm_q, norm_k, to_out, add_q_proj, add_k_proj, add_v_proj, norm_added_q,
            norm_added_k, to_add_out)

  JointAttention(int64_t dim, const JointAttentionOptions& options);
  // hidden_states[B, N, dim], text[B, M, dim] where there is one -> what both get, the text's absent with
  // context_pre_only. rotary_cos and rotary_sin: RotaryPositions of the text's tokens, then of the others [M + N, R],
  // or absent.
  Tensors forward(const Tensor& hidden_states, const Tensor& text = {}, const Tensor& rotary_cos = {},
                  const Tensor& rotary_sin = {}) const;
  bool pack() override;  // queries, keys and values of either stream
};

}  // namespace sf::models
