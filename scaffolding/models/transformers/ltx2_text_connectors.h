// LTX2TextConnectors: what stands between LTX-2's text encoder and its denoiser (Lightricks 2026, arXiv 2601.03233).
// The states of all layers of the text encoder are normalised and projected; one transformer for each stream reads
// them, with registers (Darcet et al. 2023, arXiv 2309.16588) where the text has no tokens.
#pragma once
#include "scaffolding/models/model.h"
#include "scaffolding/models/parts/feed_forward.h"
#include "scaffolding/models/transformers/ltx2_attention.h"

namespace sf::models {

struct LTX2TextConnectorsConfig {
  int64_t caption_channels = 3840;   // of a state of the text encoder
  int64_t text_proj_in_factor = 49;  // states: one for each layer, and the embeddings
  int64_t video_connector_num_attention_heads = 30, video_connector_attention_head_dim = 128;
  int64_t video_connector_num_layers = 2;
  std::optional<int64_t> video_connector_num_learnable_registers = 128;  // absent: none, and padding is not attended to
  bool video_gated_attn = false;
  int64_t audio_connector_num_attention_heads = 30, audio_connector_attention_head_dim = 128;
  int64_t audio_connector_num_layers = 2;
  std::optional<int64_t> audio_connector_num_learnable_registers = 128;
  bool audio_gated_attn = false;
  int64_t connector_rope_base_seq_len = 4096;  // by which places of tokens are divided
  double rope_theta = 10000;
  bool rope_double_precision = true;
  bool causal_temporal_positioning = false;  // which nothing looks at, here or there
  std::string rope_type = "interleaved";
  bool per_modality_projections = false;  // of either stream (LTX-2.3), not one for both (LTX-2.0)
  int64_t video_hidden_dim = 4096, audio_hidden_dim = 2048;
  bool proj_bias = false;
  io::Fields fields();
};

struct LTX2ConnectorOptions {
  int64_t heads = 30, dim_head = 128, num_layers = 2;
  std::optional<int64_t> registers = 128;
  bool gated = false;
  int64_t base_seq_len = 4096;
  double theta = 10000;
  bool double_precision = true;
  LTX2RopeType rope_type = LTX2RopeType::Interleaved;
};

struct LTX2TransformerBlock1d : nn::Module {
  nn::RMSNorm norm1;
  LTX2Attention attn1;
  nn::RMSNorm norm2;
  FeedForward ff;
  SF_MODULE(LTX2TransformerBlock1d, norm1, attn1, norm2, ff)
  explicit LTX2TransformerBlock1d(const LTX2ConnectorOptions& options);
  // hidden_states[B, M, C]; attention_mask as LTX2Attention takes it; cosines and sines as LTX2Rotary has them
  Tensor forward(const Tensor& hidden_states, const Tensor& attention_mask, const Tensor& cos, const Tensor& sin) const;
};

struct LTX2ConnectorTransformer1d : nn::Module {
  Tensor learnable_registers;  // [registers, C], or absent
  nn::ModuleList<LTX2TransformerBlock1d> transformer_blocks;
  nn::RMSNorm norm_out;
  SF_MODULE(LTX2ConnectorTransformer1d, learnable_registers, transformer_blocks, norm_out)
  explicit LTX2ConnectorTransformer1d(const LTX2ConnectorOptions& options);
  // hidden_states[B, M, C]; attention_mask[B, M]: 1 for tokens of the text, 0 for others. With registers the tokens
  // come first in the result, and registers behind them, by their place; M must be a multiple of their number.
  Tensor forward(const Tensor& hidden_states, const Tensor& attention_mask) const;

 private:
  Tensor with_registers(const Tensor& x, const Tensor& mask) const;
  LTX2Rope angles_;
  KeptTable places_;
};

struct LTX2TextConnectors : ConfiguredModel<LTX2TextConnectorsConfig> {
  static constexpr const char* kName = "LTX2TextConnectors";
  std::optional<nn::Linear> text_proj_in, video_text_proj_in, audio_text_proj_in;
  LTX2ConnectorTransformer1d video_connector, audio_connector;
  SF_MODULE(LTX2TextConnectors, text_proj_in, video_text_proj_in, audio_text_proj_in, video_connector, audio_connector)
  explicit LTX2TextConnectors(Config config = {});
  const char* library() const override { return "ltx2"; }  // a module of diffusers, as its index has it
  // text_encoder_hidden_states[B, M, caption_channels, text_proj_in_factor], or with the last two flattened;
  // attention_mask[B, M]: 1 for tokens, 0 for padding, which is on padding_side ("left" or "right"; only LTX-2.0's
  // normalisation looks at it, and at scale_factor).
  // -> the video's text [B, M, C], the audio's [B, M, A], and what of them is to be seen, [B, M] of int64: 1 for all,
  // without registers too, as diffusers has it. The denoiser needs no such mask.
  Tensors forward(const Tensor& text_encoder_hidden_states, const Tensor& attention_mask,
                  const std::string& padding_side = "left", double scale_factor = 8) const;
};

}  // namespace sf::models
