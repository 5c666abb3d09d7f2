// Gemma 3's layers as an encoder of prompts (LTX-2), under transformers' names and keys: each token sees those before
// it, in most layers those of a window, queries share keys and values in groups, and positions turn queries and keys.
// Gemma Team 2025, arXiv 2503.19786. Nothing is generated and no picture is seen: there is no cache of keys and values,
// no head and no vision tower.
#pragma once
#include <array>

#include "scaffolding/models/model.h"
#include "scaffolding/models/parts/attention.h"
#include "scaffolding/nn/embedding.h"

namespace sf::models {

struct Gemma3TextConfig {
  int64_t vocab_size = 262208, hidden_size = 2304, intermediate_size = 9216, num_hidden_layers = 26,
          num_attention_heads = 8, num_key_value_heads = 4, head_dim = 256;
  std::string hidden_activation = "gelu_pytorch_tanh";
  int64_t max_position_embeddings = 131072;
  double initializer_range = 0.02, rms_norm_eps = 1e-6;
  bool use_cache = true;  // this, the tokens but the padding's and tie_word_embeddings are in files, and not used
  std::optional<int64_t> pad_token_id = 0;
  io::Object eos_token_id = int64_t(1);  // a number or a list of them
  std::optional<int64_t> bos_token_id = 2;
  bool tie_word_embeddings = true;
  // {"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6}, "sliding_attention": {...}}; absent:
  // default positions, of a theta of 1e6 and 1e4
  io::Object rope_parameters;
  bool attention_bias = false;
  double attention_dropout = 0;
  int64_t query_pre_attn_scalar = 256;            // scores are divided by its root
  std::optional<int64_t> sliding_window = 4096;   // tokens that one sees in a layer of "sliding_attention", and itself
  io::Object layer_types;                         // absent: every sixth "full_attention", the others sliding
  std::optional<double> final_logit_softcapping;  // these and use_bidirectional_attention are not supported
  std::optional<double> attn_logit_softcapping;
  std::optional<bool> use_bidirectional_attention = false;
  io::Fields fields();
};

// Turning angles of one kind of layer: a position p and a pair i of n channels turn by p / factor * theta^(-2 i / n).
struct Gemma3Rope {
  double theta, factor;
};
inline constexpr std::array kGemma3LayerTypes{"full_attention", "sliding_attention"};
// Of one of kGemma3LayerTypes, by its place there.
Gemma3Rope gemma3_rope(const Gemma3TextConfig& config, size_t type);
// Places in kGemma3LayerTypes of the layers.
std::vector<size_t> gemma3_layer_types(const Gemma3TextConfig& config);
// ValueError for a config that cannot be, NotSupported for what only other models have.
Gemma3TextConfig checked_gemma3(Gemma3TextConfig config);

// x / sqrt(mean of squares + eps) * (1 + weight): in float32 until the end, however the weight is stored.
struct Gemma3RMSNorm : nn::Module {
  double eps;
  Tensor weight;  // [channels], zeros in the beginning
  SF_MODULE(Gemma3RMSNorm, weight)
  Gemma3RMSNorm(int64_t channels, double eps);
  Tensor forward(const Tensor& x) const;
  std::string extra_repr() const override;
};

// Rows times the root of their width, which is rounded to their dtype.
struct Gemma3TextScaledWordEmbedding : nn::Embedding {
  SF_MODULE(Gemma3TextScaledWordEmbedding, weight)
  using nn::Embedding::Embedding;
  Tensor forward(const Tensor& input) const;
};

// What attention is told of positions, [B or 1, 1, N, head_dim], and of what is seen: mask[B or 1, 1, N, N], true where
// a token sees another; absent: those before it and itself.
struct Gemma3Places {
  Tensor cos, sin, mask;
};

struct Gemma3Attention : nn::Module, PackedPart {
  int64_t heads, kv_heads;
  double scale, dropout;
  nn::Linear q_proj, k_proj, v_proj, o_proj;
  Gemma3RMSNorm q_norm, k_norm;  // of each head
  SF_MODULE(Gemma3Attention, q_proj, k_proj, v_proj, o_proj, q_norm, k_norm)
  explicit Gemma3Attention(const Gemma3TextConfig& c);
  // hidden_states[B, N, hidden_size]; the others as Gemma3Places has them.
  Tensor forward(const Tensor& hidden_states, const Tensor& cos, const Tensor& sin, const Tensor& mask = {}) const;
  bool pack() override;
};

struct Gemma3MLP : nn::Module {
  nn::Linear gate_proj, up_proj, down_proj;
  SF_MODULE(Gemma3MLP, gate_proj, up_proj, down_proj)
  explicit Gemma3MLP(const Gemma3TextConfig& c);
  Tensor forward(const Tensor& hidden_states) const;
};

struct Gemma3DecoderLayer : CheckpointedModule {
  Gemma3Attention self_attn;
  Gemma3MLP mlp;
  Gemma3RMSNorm input_layernorm, post_attention_layernorm, pre_feedforward_layernorm, post_feedforward_layernorm;
  SF_MODULE(Gemma3DecoderLayer, self_attn, mlp, input_layernorm, post_attention_layernorm, pre_feedforward_layernorm,
            post_feedforward_layernorm)
  explicit Gemma3DecoderLayer(const Gemma3TextConfig& c);
  Tensor forward(const Tensor& hidden_states, const Tensor& cos, const Tensor& sin, const Tensor& mask = {}) const;
};

struct Gemma3TextModel : ConfiguredModel<Gemma3TextConfig> {
  static constexpr const char* kName = "Gemma3TextModel";
  Gemma3TextScaledWordEmbedding embed_tokens;
  nn::ModuleList<Gemma3DecoderLayer> layers;
  Gemma3RMSNorm norm;
  SF_MODULE(Gemma3TextModel, embed_tokens, layers, norm)
  explicit Gemma3TextModel(Config config = {});
  const char* library() const override { return "transformers"; }
  const char* model_type() const override { return "gemma3_text"; }
  // The text part of a Gemma3Config; and of files from before transformers 5, which have rope_theta,
  // rope_local_base_freq, rope_scaling and sliding_window_pattern by themselves.
  static io::Object flat_config(const io::Object& config);
  // Of the published sizes (270M, 1B, 4B, 12B, 27B), under transformers' names or llama.cpp's. ValueError for others.
  static io::Object config_of_weights(const std::vector<io::CheckpointEntry>& tensors);
  // Of files of Gemma3ForConditionalGeneration, Gemma3Model and Gemma3ForCausalLM too, which have this model within:
  // tensors of pictures and of generation are left out, and not read.
  std::string current_key(const std::string& file_key) const override;

  // input_ids[B, N], or their embeddings[B, N, hidden_size]; attention_mask[B, N]: 0 where a token is padding;
  // position_ids[B or 1, N]: absent: 0, 1, ... {last_hidden_state[B, N, hidden_size], and with output_hidden_states the
  // embeddings, the output of each layer but the last, and last_hidden_state again}. A token that sees none, padding
  // before a text, has states that mean nothing, and are no NaN.
  Tensors forward(const Tensor& input_ids, const Tensor& attention_mask = {}, const Tensor& position_ids = {},
                  const Tensor& inputs_embeds = {}, bool output_hidden_states = false) const;
  // All hidden states in one tensor [B, N, hidden_size * (layers + 1)]: for each channel the embedding's, each
  // layer's, as forward() gives them. Each is written to its place when it is there, so that nothing is in memory
  // twice. Of padding that all texts of the batch have, before or behind, states are zeros, and are not computed:
  // nothing that is seen depends on them. Records no gradient.
  Tensor stacked_hidden_states(const Tensor& input_ids, const Tensor& attention_mask = {}) const;

 private:
  // The embeddings, each layer's output but the last one's, the last one's after the norm: x[B, N, hidden_size] from
  // these positions on. seen[B, N], bool: absent: all are.
  void run(Tensor x, const Tensor& positions, const Tensor& seen,
           const std::function<void(const Tensor& state)>& take) const;
};

}  // namespace sf::models
