// DiTModel: diffusion with a transformer over patches of pictures or videos, told a text. The blocks are DiT's (Peebles
// and Xie 2022, arXiv 2212.09748) with attention to the text between, as in PixArt-alpha (Chen et al. 2023,
// arXiv 2310.00426).
#pragma once
#include "scaffolding/models/model.h"
#include "scaffolding/models/parts/attention.h"
#include "scaffolding/models/parts/feed_forward.h"
#include "scaffolding/models/parts/norm.h"

namespace sf::models {

struct DiTConfig {
  int64_t patch_size = 2, in_channels = 16, hidden_size = 1152, depth = 28, num_heads = 16;
  double mlp_ratio = 4;
  int64_t context_dim = 4096;           // channels of the text's embedding; 4096 are T5-XXL's
  std::optional<int64_t> out_channels;  // absent: in_channels
  io::Fields fields();
};

struct DiTBlock : CheckpointedModule {
  // of the timestep: shift, scale and gate of the attention, then of the feed-forward layer
  nn::Linear adaLN_modulation;
  Attention attn1, attn2;  // among the patches; to the text
  FeedForward ff;
  SF_MODULE(DiTBlock, adaLN_modulation, attn1, attn2, ff)
  explicit DiTBlock(const DiTConfig& c);
  // hidden_states[B, N, C], conditioning[B, C], text[B, M, C] or absent; mask as Attention takes it.
  Tensor forward(const Tensor& hidden_states, const Tensor& conditioning, const Tensor& text, const Tensor& mask) const;
};

// Text [B, M, context_dim] as [B, M, hidden_size].
struct DiTTextProjection : nn::Module {
  nn::Linear linear_1, linear_2;
  SF_MODULE(DiTTextProjection, linear_1, linear_2)
  DiTTextProjection(int64_t context_dim, int64_t hidden_size);
  Tensor forward(const Tensor& text) const;
};

struct DiTModel : ConfiguredModel<DiTConfig> {
  static constexpr const char* kName = "DiTModel";
  nn::Conv2d x_embedder;  // of each frame's patches
  TimestepEmbedding t_embedder;
  DiTTextProjection text_embedder;
  nn::ModuleList<DiTBlock> blocks;
  nn::Linear final_modulation, final_linear;
  SF_MODULE(DiTModel, x_embedder, t_embedder, text_embedder, blocks, final_modulation, final_linear)
  explicit DiTModel(Config config = {});
  // hidden_states: latents of pictures [B, in_channels, H, W] or of videos [B, in_channels, F, H, W],
  // sides that patch_size divides;
  // timestep[] or [B], whole or fractional; encoder_hidden_states[B, M, context_dim], absent: no text;
  // encoder_attention_mask[B, M]: 0 where the text is padding -> the latents' shape, with out_channels.
  // A picture is a video of one frame.
  Tensor forward(const Tensor& hidden_states, const Tensor& timestep, const Tensor& encoder_hidden_states = {},
                 const Tensor& encoder_attention_mask = {}) const;

 private:
  KeptTable positions_;
};

}  // namespace sf::models
