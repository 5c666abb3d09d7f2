// PixArtTransformer2DModel: diffusion with a transformer over patches, told a text: PixArt-alpha (Chen et al. 2023,
// arXiv 2310.00426) and PixArt-Sigma (2024, arXiv 2403.04692). One set of shifts and scales is made of the timestep for
// all blocks, each of which adds a table of its own.
#pragma once
#include "scaffolding/models/parts/attention.h"
#include "scaffolding/models/parts/feed_forward.h"
#include "scaffolding/models/parts/norm.h"
#include "scaffolding/models/transformers/dit_model.h"

namespace sf::models {

struct PixArtTransformer2DConfig {
  int64_t num_attention_heads = 16, attention_head_dim = 72, in_channels = 4;
  std::optional<int64_t> out_channels = 8;  // twice in_channels where the variance is learned; absent: in_channels
  int64_t num_layers = 28;
  double dropout = 0;
  int64_t norm_num_groups = 32;
  std::optional<int64_t> cross_attention_dim = 1152;  // absent: no attention to a text
  bool attention_bias = true;
  int64_t sample_size = 128, patch_size = 2;
  std::string activation_fn = "gelu-approximate";
  std::optional<int64_t> num_embeds_ada_norm = 1000;
  bool upcast_attention = false;
  std::string norm_type = "ada_norm_single";
  bool norm_elementwise_affine = false;
  double norm_eps = 1e-6;
  std::optional<double> interpolation_scale;      // absent: 1 per 64 of sample_size
  std::optional<bool> use_additional_conditions;  // sizes of the picture; absent: where sample_size is 128
  std::optional<int64_t> caption_channels;        // absent: the text has cross_attention_dim channels
  std::optional<std::string> attention_type = "default";
  io::Fields fields();
};

// A timestep's embedding, and that of a picture's sizes where they are told.
struct PixArtSizeEmbeddings : nn::Module {
  TimestepEmbedding timestep_embedder;
  std::optional<TimestepEmbedding> resolution_embedder, aspect_ratio_embedder;
  SF_MODULE(PixArtSizeEmbeddings, timestep_embedder, resolution_embedder, aspect_ratio_embedder)
  PixArtSizeEmbeddings(int64_t embedding_dim, bool use_additional_conditions);
  // timestep[B], resolution[B, 2] (height, width), aspect_ratio[B, 1] -> [B, embedding_dim]
  Tensor forward(const Tensor& timestep, const Tensor& resolution, const Tensor& aspect_ratio, DType dtype) const;
};

struct AdaLayerNormSingle : nn::Module {
  PixArtSizeEmbeddings emb;
  nn::Linear linear;  // of the embedding: shift, scale and gate of the attention, then of the feed-forward layer
  SF_MODULE(AdaLayerNormSingle, emb, linear)
  AdaLayerNormSingle(int64_t embedding_dim, bool use_additional_conditions);
};

struct PixArtTransformerBlock : CheckpointedModule {
  Tensor scale_shift_table;  // [6, C], added to what all blocks have
  TransformerNorm norm1;
  Attention attn1;
  TransformerNorm norm2;  // before the feed-forward layer
  std::optional<Attention> attn2;
  FeedForward ff;
  SF_MODULE(PixArtTransformerBlock, scale_shift_table, norm1, attn1, norm2, attn2, ff)
  explicit PixArtTransformerBlock(const PixArtTransformer2DConfig& c);
  // hidden_states[B, N, C], modulation[B, 6 C], text[B, M, cross_attention_dim] or absent;
  // masks as Attention takes them.
  Tensor forward(const Tensor& hidden_states, const Tensor& modulation, const Tensor& text, const Tensor& mask,
                 const Tensor& text_mask) const;
};

struct PixArtTransformer2DModel : ConfiguredModel<PixArtTransformer2DConfig> {
  static constexpr const char* kName = "PixArtTransformer2DModel";
  PatchEmbed pos_embed;
  nn::ModuleList<PixArtTransformerBlock> transformer_blocks;
  Tensor scale_shift_table;  // [2, C]
  nn::Linear proj_out;
  AdaLayerNormSingle adaln_single;
  std::optional<DiTTextProjection> caption_projection;
  SF_MODULE(PixArtTransformer2DModel, scale_shift_table, pos_embed, transformer_blocks, proj_out, adaln_single,
            caption_projection)
  explicit PixArtTransformer2DModel(Config config = {});
  // of files from when the class was Transformer2DModel, without its other fields
  static io::Object flat_config(const io::Object& config);
  // hidden_states[B, in_channels, H, W] with sides that patch_size divides; encoder_hidden_states[B, M,
  // caption_channels], absent: the patches themselves; timestep[] or [B]; resolution[B, 2] and aspect_ratio[B, 1] with
  // use_additional_conditions; masks as attention_bias takes them -> [B, out_channels, H, W].
  Tensor forward(const Tensor& hidden_states, const Tensor& encoder_hidden_states, const Tensor& timestep,
                 const Tensor& resolution = {}, const Tensor& aspect_ratio = {}, const Tensor& attention_mask = {},
                 const Tensor& encoder_attention_mask = {}) const;
};

}  // namespace sf::models
