// The block of LTX-2's denoiser: a video's tokens and an audio's attend to themselves, to their text and to each other.
#pragma once
#include "scaffolding/models/model.h"
#include "scaffolding/models/parts/feed_forward.h"
#include "scaffolding/models/transformers/ltx2_attention.h"

namespace sf::models {

struct LTX2BlockOptions {
  int64_t heads = 32, dim_head = 128, text_dim = 4096;
  int64_t audio_heads = 32, audio_dim_head = 64, audio_text_dim = 2048;
  bool gated = false, modulates_queries = false;  // of the video: each head's result; queries of the text
  bool audio_gated = false, audio_modulates_queries = false;
  bool modulates_text = false;
  bool attention_bias = true, attention_out_bias = true, ff_bias = true, audio_ff_bias = true;
  std::string activation_fn = "gelu-approximate";
  double norm_eps = 1e-6;
  bool norm_elementwise_affine = false;
  LTX2RopeType rope_type = LTX2RopeType::Interleaved;
};

struct LTX2VideoTransformerBlock : CheckpointedModule {
  nn::RMSNorm norm1;
  LTX2Attention attn1;
  nn::RMSNorm audio_norm1;
  LTX2Attention audio_attn1;
  nn::RMSNorm norm2;
  LTX2Attention attn2;
  nn::RMSNorm audio_norm2;
  LTX2Attention audio_attn2;
  nn::RMSNorm audio_to_video_norm;
  LTX2Attention audio_to_video_attn;
  nn::RMSNorm video_to_audio_norm;
  LTX2Attention video_to_audio_attn;
  nn::RMSNorm norm3;
  FeedForward ff;
  nn::RMSNorm audio_norm3;
  FeedForward audio_ff;
  // What is added to modulations that all blocks have. [6, C]: shift, scale and gate of self-attention and of the
  // feed-forward layer; [9, C] of the text's queries besides
  Tensor scale_shift_table, audio_scale_shift_table;
  Tensor prompt_scale_shift_table, audio_prompt_scale_shift_table;  // [2, C]: shift and scale of the text, or absent
  // [5, C]: scale and shift where the video attends to the audio, then where the audio attends to the video; the gate
  Tensor video_a2v_cross_attn_scale_shift_table, audio_a2v_cross_attn_scale_shift_table;
  SF_MODULE(LTX2VideoTransformerBlock, scale_shift_table, audio_scale_shift_table, prompt_scale_shift_table,
            audio_prompt_scale_shift_table, video_a2v_cross_attn_scale_shift_table,
            audio_a2v_cross_attn_scale_shift_table, norm1, attn1, audio_norm1, audio_attn1, norm2, attn2, audio_norm2,
            audio_attn2, audio_to_video_norm, audio_to_video_attn, video_to_audio_norm, video_to_audio_attn, norm3, ff,
            audio_norm3, audio_ff)

  explicit LTX2VideoTransformerBlock(const LTX2BlockOptions& options);
  // hidden_states[B, N, C], audio_hidden_states[B, L, A], their texts [B, M, text_dim] and [B, M, audio_text_dim].
  // modulation: [R, n, C] of the video with n = 6 or 9, 4 and 1 (the tables' rows), the same three of the audio with A
  // channels, then, where the text's modulation depends on the noise, [B, 2, C] and [B, 2, A]. R is B, or B * N (B * L)
  // with a row for each token.
  // rotary: cosines and sines (LTX2Rotary) of the video and of the audio for self-attention, then of both for attention
  // to each other.
  // Masks are added to scores: [B, 1, M] of the texts, [B, N, N] of the video's self-attention.
  // only_values, perturbation_mask[B, 1, 1]: of self-attention, as LTX2Attention has them.
  // -> the video's tokens, then the audio's.
  Tensors forward(const Tensor& hidden_states, const Tensor& audio_hidden_states, const Tensor& encoder_hidden_states,
                  const Tensor& audio_encoder_hidden_states, const Tensors& modulation, const Tensors& rotary,
                  const Tensor& encoder_attention_mask = {}, const Tensor& audio_encoder_attention_mask = {},
                  const Tensor& video_self_attention_mask = {}, bool isolate_modalities = false,
                  bool only_values = false, const Tensor& perturbation_mask = {}) const;
};

// norm(x[B, N, C]), which is asked for with several modulations: one pass each where nobody looks at the norm, else one
// call of it. Norm: nn::RMSNorm or nn::LayerNorm.
template <class Norm> class NormedTokens {
 public:
  NormedTokens(const Norm& norm, const Tensor& x);
  // norm(x) * (1 + scale) + shift; scale and shift are [B, C], or [B * N, C] with a row for each token.
  Tensor modulated(const Tensor& scale, const Tensor& shift) const;

 private:
  const Norm& norm_;
  Tensor x_, normed_;  // normed_: absent where the norm is part of the pass
};
extern template class NormedTokens<nn::RMSNorm>;
extern template class NormedTokens<nn::LayerNorm>;

}  // namespace sf::models
