// CLIP's text encoder, under transformers' names and keys: the prompts of Stable Diffusion (ViT-L), SD 2 (OpenCLIP
// ViT-H without its last layer) and SDXL (ViT-L and bigG).
#pragma once
#include "scaffolding/models/model.h"
#include "scaffolding/models/parts/packed_projections.h"
#include "scaffolding/nn/embedding.h"
#include "scaffolding/nn/linear.h"
#include "scaffolding/nn/norm.h"

namespace sf::models {

struct CLIPTextConfig {
  int64_t vocab_size = 49408, hidden_size = 512, intermediate_size = 2048;
  std::optional<int64_t> projection_dim = 512;
  int64_t num_hidden_layers = 12, num_attention_heads = 8, max_position_embeddings = 77;
  std::string hidden_act = "quick_gelu";  // or "gelu", "gelu_new", "relu", "silu"
  double layer_norm_eps = 1e-5, attention_dropout = 0, initializer_range = 0.02, initializer_factor = 1;
  std::optional<int64_t> pad_token_id = 1, bos_token_id = 49406;
  // The pooled token is the first of this id. 2, which older configs have by mistake: the token with the largest id.
  int64_t eos_token_id = 49407;
  io::Fields fields();
};

struct CLIPTextEmbeddings : nn::Module {
  nn::Embedding token_embedding, position_embedding;
  SF_MODULE(CLIPTextEmbeddings, token_embedding, position_embedding)
  explicit CLIPTextEmbeddings(const CLIPTextConfig& c);
  Tensor forward(const Tensor& input_ids, const Tensor& position_ids = {}) const;  // ids[B, N] -> [B, N, hidden]
};

struct CLIPAttention : nn::Module, PackedPart {
  int64_t num_heads;
  double dropout;
  nn::Linear k_proj, v_proj, q_proj, out_proj;
  SF_MODULE(CLIPAttention, k_proj, v_proj, q_proj, out_proj)
  explicit CLIPAttention(const CLIPTextConfig& c);
  // mask: bool, broadcasts to [B, heads, N, N]; absent: causal.
  Tensor forward(const Tensor& hidden_states, const Tensor& mask = {}) const {
    return compute(hidden_states, mask, {});
  }
  // residual + (*this)(hidden_states, mask)
  Tensor beside(const Tensor& residual, const Tensor& hidden_states, const Tensor& mask = {}) const;
  bool pack() override;

 private:
  Tensor compute(const Tensor& x, const Tensor& mask, const Tensor& residual) const;
};

struct CLIPMLP : nn::Module {
  std::string activation;  // as ProjectOptions names it
  nn::Linear fc1, fc2;
  SF_MODULE(CLIPMLP, fc1, fc2)
  explicit CLIPMLP(const CLIPTextConfig& c);
  Tensor forward(const Tensor& hidden_states) const;
  Tensor beside(const Tensor& residual, const Tensor& hidden_states) const;  // residual + (*this)(hidden_states)
};

struct CLIPEncoderLayer : CheckpointedModule {
  CLIPAttention self_attn;
  nn::LayerNorm layer_norm1;
  CLIPMLP mlp;
  nn::LayerNorm layer_norm2;
  SF_MODULE(CLIPEncoderLayer, self_attn, layer_norm1, mlp, layer_norm2)
  explicit CLIPEncoderLayer(const CLIPTextConfig& c);
  Tensor forward(const Tensor& hidden_states, const Tensor& mask = {}) const;
};

struct CLIPEncoder : nn::Module {
  nn::ModuleList<CLIPEncoderLayer> layers;
  SF_MODULE(CLIPEncoder, layers)
  explicit CLIPEncoder(const CLIPTextConfig& c);
};

struct CLIPTextTransformer : nn::Module {
  int64_t eos_token_id;
  CLIPTextEmbeddings embeddings;
  CLIPEncoder encoder;
  nn::LayerNorm final_layer_norm;
  SF_MODULE(CLIPTextTransformer, embeddings, encoder, final_layer_norm)
  explicit CLIPTextTransformer(const CLIPTextConfig& c);
  // {last_hidden_state, pooler_output, hidden_states...}, as CLIPTextModel.
  Tensors forward(const Tensor& input_ids, const Tensor& attention_mask = {}, const Tensor& position_ids = {},
                  bool output_hidden_states = false) const;
};

struct CLIPTextModelBase : ConfiguredModel<CLIPTextConfig> {
  explicit CLIPTextModelBase(CLIPTextConfig config);
  const char* library() const override { return "transformers"; }
  const char* model_type() const override { return "clip_text_model"; }
  // For files whose root is the text model, older ones with position_ids, and those of whole CLIP models.
  std::string current_key(const std::string& file_key) const override;
  static io::Object flat_config(
      const io::Object& config);  // the text part of a CLIPConfig; a config of the text model as it is
  static io::Object config_of_weights(const std::vector<io::CheckpointEntry>& tensors);  // clip_text_config's
};

// Text to the vectors that a UNet attends to.
struct CLIPTextModel : CLIPTextModelBase {
  static constexpr const char* kName = "CLIPTextModel";
  CLIPTextTransformer text_model;
  SF_MODULE(CLIPTextModel, text_model)
  explicit CLIPTextModel(Config config = {});
  // input_ids[B, N]; attention_mask[B, N]: 0 where a token is padding; position_ids[B or 1, N], absent: 0 .. N - 1.
  // {last_hidden_state[B, N, hidden], pooler_output[B, hidden], and with output_hidden_states the embeddings and each
  // layer's output [B, N, hidden], before the final norm}. The penultimate layer's is the last but one.
  Tensors forward(const Tensor& input_ids, const Tensor& attention_mask = {}, const Tensor& position_ids = {},
                  bool output_hidden_states = false) const;
};

// And the pooled vector projected into the space that pictures and texts share.
struct CLIPTextModelWithProjection : CLIPTextModelBase {
  static constexpr const char* kName = "CLIPTextModelWithProjection";
  CLIPTextTransformer text_model;
  nn::Linear text_projection;
  SF_MODULE(CLIPTextModelWithProjection, text_model, text_projection)
  explicit CLIPTextModelWithProjection(Config config = {});
  std::string current_key(const std::string& file_key) const override;
  // {text_embeds[B, projection_dim], last_hidden_state[B, N, hidden], hidden_states...}
  Tensors forward(const Tensor& input_ids, const Tensor& attention_mask = {}, const Tensor& position_ids = {},
                  bool output_hidden_states = false) const;
};

// The config of a text encoder from the names and shapes of its tensors, under transformers' keys: sizes are those of
// the tensors; heads have 64 channels, and those of 1024 and more (OpenCLIP's ViT-H and bigG) use gelu,
// the others OpenAI's quick_gelu.
// ValueError naming the tensor that is missing, and for a width that no published one has: 512, 768, 1024 or 1280.
CLIPTextConfig clip_text_config(const std::vector<io::CheckpointEntry>& tensors);

}  // namespace sf::models
