// T5's encoder, under transformers' names and keys: the prompts of PixArt, and with CLIP those of SD 3 and FLUX. Raffel
// et al. 2019, arXiv 1910.10683; version 1.1 has a gate in its feed-forward layers.
#pragma once
#include "scaffolding/models/kept_float32.h"
#include "scaffolding/models/model.h"
#include "scaffolding/models/parts/packed_projections.h"
#include "scaffolding/nn/dropout.h"
#include "scaffolding/nn/embedding.h"
#include "scaffolding/nn/linear.h"

namespace sf::models {

struct T5Config {
  int64_t vocab_size = 32128, d_model = 512, d_kv = 64, d_ff = 2048, num_layers = 6;
  std::optional<int64_t> num_decoder_layers;  // of whole models
  int64_t num_heads = 8, relative_attention_num_buckets = 32, relative_attention_max_distance = 128;
  double dropout_rate = 0.1, layer_norm_epsilon = 1e-6, initializer_factor = 1;
  std::string feed_forward_proj =
      "relu";             // or "gelu", "gelu_new", "silu"; "gated-" before it for a gate: "gated-gelu" is version 1.1
  bool use_cache = true;  // this and what follows is in files, and not used
  std::optional<int64_t> pad_token_id = 0, eos_token_id = 1;
  double classifier_dropout = 0;
  bool is_encoder_decoder = true;
  std::optional<std::string> dense_act_fn;  // but for these two, which are made from feed_forward_proj
  std::optional<bool> is_gated_act, tie_word_embeddings, output_past;
  std::optional<int64_t> decoder_start_token_id;
  io::Fields fields();
};

// x / sqrt(mean(x^2) + eps) * weight: no mean is taken off. In the weight's type where that is a half one.
struct T5LayerNorm : nn::Module {
  double variance_epsilon;
  Tensor weight;  // [d_model]
  SF_MODULE(T5LayerNorm, weight)
  T5LayerNorm(int64_t d_model, double eps, double factor);
  Tensor forward(const Tensor& hidden_states) const;
};

struct T5DenseActDense : nn::Module {
  std::string activation;  // an activation of transformers
  std::optional<nn::Linear> wi, wi_0, wi_1;
  nn::Linear wo;
  nn::Dropout dropout;
  SF_MODULE(T5DenseActDense, wi, wi_0, wi_1, wo, dropout)
  explicit T5DenseActDense(const T5Config& c);
  Tensor forward(const Tensor& hidden_states) const;
};

struct T5LayerFF : nn::Module {
  T5DenseActDense DenseReluDense;
  T5LayerNorm layer_norm;
  nn::Dropout dropout;
  SF_MODULE(T5LayerFF, DenseReluDense, layer_norm, dropout)
  explicit T5LayerFF(const T5Config& c);
  Tensor forward(const Tensor& hidden_states) const;
};

struct T5Attention : nn::Module, PackedPart {
  int64_t n_heads, num_buckets, max_distance;
  double dropout;
  nn::Linear q, k, v, o;
  std::optional<nn::Embedding> relative_attention_bias;  // the first block's, which all use
  Value forward_tensors(const nn::Values& args) override { return call_tensors(*this, args); }
  const char* type() const override { return "T5Attention"; }
  void visit(nn::Visitor& visitor) override {
    visit_members(visitor, "q, k, v, o, relative_attention_bias", q, k, v, o, relative_attention_bias);
  }
  template <class... A> auto operator()(A&&... a) const { return call_module(*this, std::forward<A>(a)...); }
  T5Attention(const T5Config& c, bool has_relative_attention_bias);
  bool pack() override;
  Tensor compute_bias(int64_t tokens) const;  // [1, heads, tokens, tokens]
  // position_bias broadcasts to [B, heads, N, N] and is added to the scores, which are not scaled.
  Tensor forward(const Tensor& hidden_states, const Tensor& position_bias) const;
};

struct T5LayerSelfAttention : nn::Module {
  T5Attention SelfAttention;
  T5LayerNorm layer_norm;
  nn::Dropout dropout;
  SF_MODULE(T5LayerSelfAttention, SelfAttention, layer_norm, dropout)
  T5LayerSelfAttention(const T5Config& c, bool has_relative_attention_bias);
  Tensor forward(const Tensor& hidden_states, const Tensor& position_bias) const;
};

struct T5Block : CheckpointedModule {
  nn::ModuleTuple<T5LayerSelfAttention, T5LayerFF> layer;
  SF_MODULE(T5Block, layer)
  T5Block(const T5Config& c, bool has_relative_attention_bias);
  Tensor forward(const Tensor& hidden_states, const Tensor& position_bias) const;
};

struct T5Stack : nn::Module {
  nn::ModuleList<T5Block> block;
  T5LayerNorm final_layer_norm;
  nn::Dropout dropout;
  SF_MODULE(T5Stack, block, final_layer_norm, dropout)
  explicit T5Stack(const T5Config& c);
  // {last_hidden_state, hidden_states...}, as T5EncoderModel.
  Tensors forward(const Tensor& inputs_embeds, const Tensor& attention_mask = {},
                  bool output_hidden_states = false) const;
};

struct T5EncoderModel : ConfiguredModel<T5Config>, KeptFloat32 {
  static constexpr const char* kName = "T5EncoderModel";
  nn::Embedding shared;  // in older files encoder.embed_tokens too
  T5Stack encoder;
  SF_MODULE(T5EncoderModel, shared, encoder)
  explicit T5EncoderModel(Config config = {});
  const char* library() const override { return "transformers"; }
  const char* model_type() const override { return "t5"; }
  std::string current_key(const std::string& file_key) const override;  // of files of whole models, and of older ones
  bool kept_float32(const std::string& key)
      const override;  // the outputs of feed-forward layers, which are beyond float16 in the large models
  // input_ids[B, N], or their embeddings[B, N, d_model]; attention_mask[B, N]: 0 where a token is padding.
  // {last_hidden_state[B, N, d_model], and with output_hidden_states the embeddings, the output of each block but the
  // last, and last_hidden_state again}.
  Tensors forward(const Tensor& input_ids, const Tensor& attention_mask = {}, const Tensor& inputs_embeds = {},
                  bool output_hidden_states = false) const;
};

// The bucket of a distance between two tokens, other - own: half of the buckets are for each direction, half of these
// for single distances, the rest grow with the logarithm up to max_distance.
int64_t t5_position_bucket(int64_t distance, int64_t num_buckets, int64_t max_distance);

}  // namespace sf::models
