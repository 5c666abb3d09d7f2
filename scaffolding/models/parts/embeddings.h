// Embeddings of timesteps, labels, patches and positions, under diffusers' names and keys.
#pragma once
#include "scaffolding/models/parts/kept_table.h"
#include "scaffolding/nn/conv.h"
#include "scaffolding/nn/embedding.h"
#include "scaffolding/nn/linear.h"
#include "scaffolding/nn/norm.h"

namespace sf::models {

struct TimestepOptions {
  bool flip_sin_to_cos = false;  // cosines first
  double downscale_freq_shift = 1;
  double scale = 1;
  int64_t max_period = 10000;
};

// Sines and cosines of timesteps[N] (whole or fractional) at embedding_dim / 2 frequencies: [N, embedding_dim] in
// float32, odd sizes padded with a zero.
Tensor timestep_embedding(const Tensor& timesteps, int64_t embedding_dim, const TimestepOptions& options = {});

struct TimestepEmbedding : nn::Module {
  nn::Linear linear_1;
  std::optional<nn::Linear> cond_proj;
  nn::Linear linear_2;
  SF_MODULE(TimestepEmbedding, linear_1, cond_proj, linear_2)
  TimestepEmbedding(int64_t in_channels, int64_t time_embed_dim, std::optional<int64_t> cond_proj_dim = {});
  Tensor forward(const Tensor& sample, const Tensor& condition = {}) const;  // [N, in_channels] -> [N, time_embed_dim]
};

// One vector for a sequence: a query made of the tokens' mean attends to it and to all of them. [B, tokens,
// embed_dim] -> [B, embed_dim].
struct AttentionPooling : nn::Module {
  int64_t num_heads;
  Tensor positional_embedding;  // [1, embed_dim], added to the mean
  nn::Linear k_proj, q_proj, v_proj;
  SF_MODULE(AttentionPooling, positional_embedding, k_proj, q_proj, v_proj)
  AttentionPooling(int64_t num_heads, int64_t embed_dim);
  Tensor forward(const Tensor& x) const;
};

// A prompt's tokens [B, tokens, encoder_dim] as what is added to a timestep's embedding: [B, time_embed_dim].
struct TextTimeEmbedding : nn::Module {
  nn::LayerNorm norm1;
  AttentionPooling pool;
  nn::Linear proj;
  nn::LayerNorm norm2;
  SF_MODULE(TextTimeEmbedding, norm1, pool, proj, norm2)
  TextTimeEmbedding(int64_t encoder_dim, int64_t time_embed_dim, int64_t num_heads = 64);
  Tensor forward(const Tensor& hidden_states) const;
};

// Class labels [B] as vectors [B, hidden_size]. In training mode the share dropout_prob of them becomes the row after
// the last class, which stands for no class (classifier-free guidance).
struct LabelEmbedding : nn::Module {
  int64_t num_classes;
  double dropout_prob;
  nn::Embedding embedding_table;
  SF_MODULE(LabelEmbedding, embedding_table)
  LabelEmbedding(int64_t num_classes, int64_t hidden_size, double dropout_prob);
  Tensor forward(const Tensor& labels) const;
};

// The sum of a timestep's embedding and a label's: timestep[] or [B], class_labels[B] -> [B, embedding_dim] in dtype.
struct CombinedTimestepLabelEmbeddings : nn::Module {
  TimestepEmbedding timestep_embedder;
  LabelEmbedding class_embedder;
  SF_MODULE(CombinedTimestepLabelEmbeddings, timestep_embedder, class_embedder)
  CombinedTimestepLabelEmbeddings(int64_t num_classes, int64_t embedding_dim, double class_dropout_prob = 0.1);
  Tensor forward(const Tensor& timestep, const Tensor& class_labels, DType dtype) const;
};

// The sum of a timestep's embedding, a pooled text's and, where a network is told the strength of guidance, that
// number's: diffusers' CombinedTimestepTextProjEmbeddings and CombinedTimestepGuidanceTextProjEmbeddings (Stable
// Diffusion 3, FLUX).
struct CombinedTimestepTextProjEmbeddings : nn::Module {
  TimestepEmbedding timestep_embedder;
  std::optional<TimestepEmbedding> guidance_embedder;
  TimestepEmbedding text_embedder;  // the same two layers, of a text
  SF_MODULE(CombinedTimestepTextProjEmbeddings, timestep_embedder, guidance_embedder, text_embedder)
  CombinedTimestepTextProjEmbeddings(int64_t embedding_dim, int64_t pooled_projection_dim,
                                     bool guidance_embeds = false);
  // timestep[B], pooled_projection[B, pooled_projection_dim], guidance[B] with guidance_embeds -> [B, embedding_dim]
  Tensor forward(const Tensor& timestep, const Tensor& pooled_projection, const Tensor& guidance = {}) const;
};

// timestep[] or [1] for a whole batch, or [B], as [B].
Tensor batch_of_timesteps(const char* who, const Tensor& timestep, int64_t batch);

// Sines then cosines of positions at dim / 2 frequencies 10000^(-2 i / dim): [positions, dim],
// float32 computed in float64.
Tensor sincos_positions(const std::vector<double>& positions, int64_t dim);

// Pictures [B, in_channels, H, W] as tokens [B, H / patch_size * W / patch_size, embed_dim],
// with the positions of their patches added:
// half of the channels tell the column, half the row, on a scale where the picture has sample_size / patch_size of
// either. With max_size a table of as many rows and columns is a tensor of the model, of which a picture takes the
// middle.
struct PatchEmbed : nn::Module {
  int64_t patch_size, base_size;
  double interpolation_scale;
  std::optional<int64_t> max_size;  // diffusers' pos_embed_max_size
  nn::Conv2d proj;
  nn::Buffer pos_embed;  // [1, max_size^2, embed_dim], or absent
  SF_MODULE(PatchEmbed, proj, pos_embed)
  PatchEmbed(int64_t sample_size, int64_t patch_size, int64_t in_channels, int64_t embed_dim,
             double interpolation_scale = 1, std::optional<int64_t> max_size = {});
  void check(const char* who, const Tensor& hidden_states) const;  // ValueError for what is no such picture
  Tensor forward(const Tensor& latent) const;
  // The way back: tokens [B, N, patch_size^2 * channels] of a picture [B, ..., H, W] as [B, channels, H, W].
  Tensor picture(const Tensor& tokens, const Tensor& like) const;

 private:
  Tensor positions(int64_t height, int64_t width, int64_t channels) const;
  KeptTable positions_;
};

// Tokens [B, f * h * w, patch_size^2 * channels] of patches as pictures [B, channels, f, h * patch_size,
// w * patch_size].
Tensor unpatchified(const Tensor& tokens, int64_t f, int64_t h, int64_t w, int64_t patch_size);

}  // namespace sf::models
