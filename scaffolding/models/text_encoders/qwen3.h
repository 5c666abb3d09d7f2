// Qwen3's layers as an encoder of prompts (Z-Image), under transformers' names and keys: each token sees those before
// it, queries share keys and values in groups, and positions turn queries and keys. Yang et al. 2025, arXiv 2505.09388.
// Nothing is generated: there is no cache of keys and values, and no head.
#pragma once
#include "scaffolding/models/model.h"
#include "scaffolding/models/parts/attention.h"
#include "scaffolding/nn/embedding.h"

namespace sf::models {

struct Qwen3Config {
  int64_t vocab_size = 151936, hidden_size = 4096, intermediate_size = 22016, num_hidden_layers = 32,
          num_attention_heads = 32;
  std::optional<int64_t> num_key_value_heads = 32;  // absent: num_attention_heads
  int64_t head_dim = 128;
  std::string hidden_act = "silu";
  int64_t max_position_embeddings = 32768;
  double initializer_range = 0.02, rms_norm_eps = 1e-6;
  bool use_cache = true;  // this and tie_word_embeddings are in files, and not used
  bool tie_word_embeddings = false;
  io::Object rope_parameters;  // {"rope_type": "default", "rope_theta": 1e6}; absent: a theta of 10000
  bool attention_bias = false, use_sliding_window = false;
  std::optional<int64_t> sliding_window = 4096;  // not looked at without use_sliding_window, nor is max_window_layers
  int64_t max_window_layers = 28;
  io::Object layer_types;  // absent: "full_attention" for each
  double attention_dropout = 0;
  std::optional<int64_t> pad_token_id, bos_token_id;
  io::Object eos_token_id;  // a number or a list of them
  io::Fields fields();
};

struct Qwen3Attention : nn::Module, PackedPart {
  int64_t heads, kv_heads;
  double dropout;
  nn::Linear q_proj, k_proj, v_proj, o_proj;
  nn::RMSNorm q_norm, k_norm;  // of each head
  SF_MODULE(Qwen3Attention, q_proj, k_proj, v_proj, o_proj, q_norm, k_norm)
  explicit Qwen3Attention(const Qwen3Config& c);
  // hidden_states[B, N, hidden_size]; cosines and sines of the positions, [B or 1, 1, N, head_dim]; mask[B, 1, N, N]:
  // true where a token sees another; absent: those before it and itself.
  Tensor forward(const Tensor& hidden_states, const Tensor& cos, const Tensor& sin, const Tensor& mask = {}) const;
  bool pack() override;
};

struct Qwen3MLP : nn::Module {
  nn::Linear gate_proj, up_proj, down_proj;
  SF_MODULE(Qwen3MLP, gate_proj, up_proj, down_proj)
  explicit Qwen3MLP(const Qwen3Config& c);
  Tensor forward(const Tensor& hidden_states) const;
};

struct Qwen3DecoderLayer : CheckpointedModule {
  Qwen3Attention self_attn;
  Qwen3MLP mlp;
  nn::RMSNorm input_layernorm, post_attention_layernorm;
  SF_MODULE(Qwen3DecoderLayer, self_attn, mlp, input_layernorm, post_attention_layernorm)
  explicit Qwen3DecoderLayer(const Qwen3Config& c);
  Tensor forward(const Tensor& hidden_states, const Tensor& cos, const Tensor& sin, const Tensor& mask = {}) const;
};

struct Qwen3Model : ConfiguredModel<Qwen3Config> {
  static constexpr const char* kName = "Qwen3Model";
  nn::Embedding embed_tokens;
  nn::ModuleList<Qwen3DecoderLayer> layers;
  nn::RMSNorm norm;
  SF_MODULE(Qwen3Model, embed_tokens, layers, norm)
  explicit Qwen3Model(Config config = {});
  const char* library() const override { return "transformers"; }
  const char* model_type() const override { return "qwen3"; }
  // of files from before transformers 5, which have rope_theta and rope_scaling by themselves
  static io::Object flat_config(const io::Object& config);
  std::string current_key(const std::string& file_key) const override;  // of files of Qwen3ForCausalLM too
  // input_ids[B, N], or their embeddings[B, N, hidden_size]; attention_mask[B, N]: 0 where a token is padding;
  // position_ids[B or 1, N]: absent: 0, 1, ... {last_hidden_state[B, N, hidden_size], and with output_hidden_states the
  // embeddings, the output of each layer but the last, and last_hidden_state again}.
  Tensors forward(const Tensor& input_ids, const Tensor& attention_mask = {}, const Tensor& position_ids = {},
                  const Tensor& inputs_embeds = {}, bool output_hidden_states = false) const;
};

}  // namespace sf::models
