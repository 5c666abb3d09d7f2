// SD3Transformer2DModel: diffusion with a transformer over patches of latents beside the tokens of a text (MMDiT, Esser
// et al. 2024, arXiv 2403.03206): Stable Diffusion 3 and 3.5. Text and picture have weights, shifts, scales and gates
// of their own, and attend to each other in one sequence.
#pragma once
#include "scaffolding/models/model.h"
#include "scaffolding/models/parts/feed_forward.h"
#include "scaffolding/models/parts/joint_attention.h"
#include "scaffolding/models/parts/norm.h"

namespace sf::models {

struct SD3Transformer2DConfig {
  int64_t sample_size = 128, patch_size = 2, in_channels = 16, num_layers = 18, attention_head_dim = 64,
          num_attention_heads = 18;
  int64_t joint_attention_dim = 4096;     // channels of the text
  int64_t caption_projection_dim = 1152;  // what they become: num_attention_heads * attention_head_dim
  int64_t pooled_projection_dim = 2048;   // of the one vector that CLIP makes of the text
  std::optional<int64_t> out_channels = 16;
  int64_t pos_embed_max_size = 96;             // patches in height and width for which positions are kept
  std::vector<int64_t> dual_attention_layers;  // 3.5 medium: blocks whose picture attends to itself besides
  std::optional<std::string> qk_norm;          // 3.5: "rms_norm" of each head's queries and keys
  io::Fields fields();
};

// What one stream of tokens is shifted and scaled by: temb[B, C] -> `parts` vectors [B, C].
struct SD3Modulation : nn::Module {
  int64_t parts;
  nn::Linear linear;
  SF_MODULE(SD3Modulation, linear)
  SD3Modulation(int64_t channels, int64_t parts);
  Tensors forward(const Tensor& temb) const;
};

struct JointTransformerBlock : CheckpointedModule {
  // of the picture: shift, scale and gate of the attention, then of the feed-forward layer, then of attn2
  SD3Modulation norm1;
  SD3Modulation norm1_context;  // of the text: the same of the first two; in the last block scale and shift alone
  JointAttention attn;
  std::optional<JointAttention> attn2;
  FeedForward ff;
  std::optional<FeedForward> ff_context;
  SF_MODULE(JointTransformerBlock, norm1, norm1_context, attn, attn2, ff, ff_context)
  JointTransformerBlock(const SD3Transformer2DConfig& c, int64_t i);
  // hidden_states[B, N, C], encoder_hidden_states[B, M, C], temb[B, C] -> both; the last block makes no text.
  Tensors forward(const Tensor& hidden_states, const Tensor& encoder_hidden_states, const Tensor& temb) const;
};

struct SD3Transformer2DModel : ConfiguredModel<SD3Transformer2DConfig> {
  static constexpr const char* kName = "SD3Transformer2DModel";
  PatchEmbed pos_embed;
  CombinedTimestepTextProjEmbeddings time_text_embed;
  nn::Linear context_embedder;
  nn::ModuleList<JointTransformerBlock> transformer_blocks;
  AdaLayerNormContinuous norm_out;
  nn::Linear proj_out;
  SF_MODULE(SD3Transformer2DModel, pos_embed, time_text_embed, context_embedder, transformer_blocks, norm_out, proj_out)
  explicit SD3Transformer2DModel(Config config = {});
  // hidden_states[B, in_channels, H, W] with sides that patch_size divides; encoder_hidden_states[B, M,
  // joint_attention_dim]; pooled_projections[B, pooled_projection_dim]; timestep[] or [B], whole or fractional;
  // block_controlnet_hidden_states: [B, N, C] each, added behind the blocks but the last, one for as many blocks as
  // there are for each; skip_layers: whole numbers [n] of the blocks that are left out -> [B, out_channels, H, W].
  Tensor forward(const Tensor& hidden_states, const Tensor& encoder_hidden_states, const Tensor& pooled_projections,
                 const Tensor& timestep, const Tensors& block_controlnet_hidden_states = {},
                 const Tensor& skip_layers = {}) const;
};

}  // namespace sf::models
