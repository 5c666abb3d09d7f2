// TextEncoder of the small video family (scaffolding.nn.video in Python): a transformer over the ids of
// tokenizers::TextTokenizer.
#pragma once
#include "scaffolding/models/model.h"
#include "scaffolding/models/parts/attention.h"
#include "scaffolding/models/parts/feed_forward.h"
#include "scaffolding/nn/embedding.h"
#include "scaffolding/nn/norm.h"

namespace sf::models::video {

struct TextEncoderConfig {
  int64_t vocab_size = 8192, embed_dim = 256, num_layers = 4, num_heads = 4;
  int64_t max_length = 77;  // tokens of a text at most
  io::Fields fields();
};

// Self-attention among the tokens, then a feed-forward layer, each behind a norm and beside a residual.
struct TextEncoderLayer : CheckpointedModule {
  nn::LayerNorm norm1;
  Attention attn;
  nn::LayerNorm norm2;
  FeedForward ff;
  SF_MODULE(TextEncoderLayer, norm1, attn, norm2, ff)
  explicit TextEncoderLayer(const TextEncoderConfig& config);
  // hidden_states[B, N, embed_dim]; attention_mask as Attention takes it.
  Tensor forward(const Tensor& hidden_states, const Tensor& attention_mask = {}) const;
};

struct TextEncoder : ConfiguredModel<TextEncoderConfig> {
  static constexpr const char* kName = "TextEncoder";
  nn::Embedding token_embedding, position_embedding;
  nn::ModuleList<TextEncoderLayer> layers;
  nn::LayerNorm final_norm;
  SF_MODULE(TextEncoder, token_embedding, position_embedding, layers, final_norm)
  explicit TextEncoder(Config config = {});
  // input_ids[B, N] of at most max_length tokens, attention_mask[B, N]: 0 where a token is padding
  // -> [B, N, embed_dim].
  Tensor forward(const Tensor& input_ids, const Tensor& attention_mask = {}) const;
};

}  // namespace sf::models::video
