// FluxTransformer2DModel: FLUX.1, flow matching with a transformer over patches of a picture's latents, told a text
// (Black Forest Labs 2024). First blocks where text and picture have weights of their own and attend to each other
// (Esser et al. 2024, arXiv 2403.03206), then blocks of one sequence whose attention and feed-forward layer stand side
// by side (Dehghani et al. 2023, arXiv 2302.05442).
#pragma once
#include "scaffolding/models/model.h"
#include "scaffolding/models/parts/feed_forward.h"
#include "scaffolding/models/parts/joint_attention.h"
#include "scaffolding/models/parts/norm.h"

namespace sf::models {

struct FluxTransformer2DConfig {
  int64_t patch_size = 1, in_channels = 64;
  std::optional<int64_t> out_channels;  // absent: in_channels
  int64_t num_layers = 19, num_single_layers = 38;
  int64_t attention_head_dim = 128, num_attention_heads = 24;
  int64_t joint_attention_dim = 4096;   // channels of the text
  int64_t pooled_projection_dim = 768;  // of the vector that tells the whole text
  bool guidance_embeds = false;         // told the strength of guidance (dev, not schnell)
  // even channels of a head that are turned by each number of a place: FLUX.1 has (0, row, column)
  std::vector<int64_t> axes_dims_rope{16, 56, 56};
  io::Fields fields();
};

struct FluxTransformerBlock : CheckpointedModule {
  AdaLayerNormGated norm1, norm1_context;
  JointAttention attn;
  nn::LayerNorm norm2;
  FeedForward ff;
  nn::LayerNorm norm2_context;
  FeedForward ff_context;
  SF_MODULE(FluxTransformerBlock, norm1, norm1_context, attn, norm2, ff, norm2_context, ff_context)
  explicit FluxTransformerBlock(const FluxTransformer2DConfig& c);
  // hidden_states[B, N, C] of the picture, encoder_hidden_states[B, M, C] of the text, temb[B, C], rotary_cos and
  // rotary_sin[M + N, R] -> the picture's, then the text's.
  Tensors forward(const Tensor& hidden_states, const Tensor& encoder_hidden_states, const Tensor& temb,
                  const Tensor& rotary_cos, const Tensor& rotary_sin) const;
};

struct FluxSingleTransformerBlock : CheckpointedModule {
  AdaLayerNormGated norm;
  nn::Linear proj_mlp, proj_out;
  JointAttention attn;
  SF_MODULE(FluxSingleTransformerBlock, norm, proj_mlp, proj_out, attn)
  explicit FluxSingleTransformerBlock(const FluxTransformer2DConfig& c);
  // hidden_states[B, M + N, C], the text first; the others as above.
  Tensor forward(const Tensor& hidden_states, const Tensor& temb, const Tensor& rotary_cos,
                 const Tensor& rotary_sin) const;
};

struct FluxTransformer2DModel : ConfiguredModel<FluxTransformer2DConfig> {
  static constexpr const char* kName = "FluxTransformer2DModel";
  CombinedTimestepTextProjEmbeddings time_text_embed;
  nn::Linear context_embedder, x_embedder;
  nn::ModuleList<FluxTransformerBlock> transformer_blocks;
  nn::ModuleList<FluxSingleTransformerBlock> single_transformer_blocks;
  AdaLayerNormContinuous norm_out;
  nn::Linear proj_out;
  SF_MODULE(FluxTransformer2DModel, time_text_embed, context_embedder, x_embedder, transformer_blocks,
            single_transformer_blocks, norm_out, proj_out)
  explicit FluxTransformer2DModel(Config config = {});
  // Of a file with Black Forest Labs' names or diffusers', whatever stands before them; ValueError where none are.
  static io::Object config_of_weights(const std::vector<io::CheckpointEntry>& tensors);
  // hidden_states[B, N, in_channels], patches of 2 x 2 latents; encoder_hidden_states[B, M, joint_attention_dim];
  // pooled_projections[B, pooled_projection_dim]; timestep[] or [B] from 0 to 1; img_ids[N, axes] and txt_ids[M, axes]:
  // places; guidance[] or [B], with guidance_embeds -> [B, N, patch_size^2 * out_channels].
  // controlnet_block_samples and controlnet_single_block_samples, each [B, N, C], are added to the picture behind
  // blocks: each serves as many blocks as it takes for the last to serve the last ones, or with
  // controlnet_blocks_repeat they go round.
  Tensor forward(const Tensor& hidden_states, const Tensor& encoder_hidden_states, const Tensor& pooled_projections,
                 const Tensor& timestep, const Tensor& img_ids, const Tensor& txt_ids, const Tensor& guidance = {},
                 const Tensors& controlnet_block_samples = {}, const Tensors& controlnet_single_block_samples = {},
                 bool controlnet_blocks_repeat = false) const;

 private:
  Tensors rotary(const Tensor& ids) const;  // cosines and sines [M + N, attention_head_dim]
  KeptTable frequencies_;
};

}  // namespace sf::models
