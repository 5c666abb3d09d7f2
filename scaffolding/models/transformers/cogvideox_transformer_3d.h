// CogVideoXTransformer3DModel: diffusion with a transformer over patches of a video's latents, told a text, and a
// picture where the latents have further channels for it (Yang et al. 2024, arXiv 2408.06072): CogVideoX 2B, 5B,
// 5B-I2V and 1.5. Text and video are one sequence, the text first; each has shifts, scales and gates of its own.
#pragma once
#include "scaffolding/models/model.h"
#include "scaffolding/models/parts/attention.h"
#include "scaffolding/models/parts/feed_forward.h"
#include "scaffolding/models/parts/norm.h"
#include "scaffolding/models/parts/video_positions.h"

namespace sf::models {

struct CogVideoXTransformer3DConfig {
  int64_t num_attention_heads = 30, attention_head_dim = 64, in_channels = 16, out_channels = 16;
  bool flip_sin_to_cos = true;
  int64_t freq_shift = 0, time_embed_dim = 512;
  std::optional<int64_t> ofs_embed_dim;  // 1.5-I2V: of a second number beside the timestep
  int64_t text_embed_dim = 4096, num_layers = 30;
  double dropout = 0;
  bool attention_bias = true;
  // of latents in width and height, but of pictures in frames: those for which positions are kept
  int64_t sample_width = 90, sample_height = 60, sample_frames = 49;
  int64_t patch_size = 2;
  std::optional<int64_t> patch_size_t;  // 1.5: frames of a patch; absent: one, whose projection is a convolution
  int64_t temporal_compression_ratio = 4, max_text_seq_length = 226;
  std::string activation_fn = "gelu-approximate", timestep_activation_fn = "silu";
  bool norm_elementwise_affine = true;
  double norm_eps = 1e-5, spatial_interpolation_scale = 1.875, temporal_interpolation_scale = 1;
  // positions turn queries and keys, and the caller gives them; without, sines and cosines are added to the tokens
  bool use_rotary_positional_embeddings = false;
  bool use_learned_positional_embeddings = false;  // 5B-I2V: added besides
  bool patch_bias = true;                          // of the convolution
  io::Fields fields();
};

// Text[B, M, text_embed_dim] and video[B, T, in_channels, H, W] as one sequence [B, M + N, C] of N = T / patch_size_t *
// H / patch_size * W / patch_size patches, with what is added for their positions.
struct CogVideoXPatchEmbed : nn::Module {
  CogVideoXTransformer3DConfig options;
  std::optional<nn::Conv2d> conv;    // either is `proj`
  std::optional<nn::Linear> linear;  // of patch_size_t
  nn::Linear text_proj;
  nn::Buffer pos_embedding;  // learned: [1, max_text_seq_length + N of sample_..., C]
  const char* type() const override { return "CogVideoXPatchEmbed"; }
  void visit(nn::Visitor& v) override;
  template <class... A> auto operator()(A&&... a) const { return call_module(*this, std::forward<A>(a)...); }

  explicit CogVideoXPatchEmbed(const CogVideoXTransformer3DConfig& c);
  void check(const char* who, const Tensor& text, const Tensor& video) const;  // ValueError for what are no such
  VideoGrid grid(const Tensor& video) const;                                   // of its patches
  Tensor forward(const Tensor& text, const Tensor& video) const;
  // The way back: tokens [B, N, patch channels] of a video [B, T, ..., H, W] as [B, T, channels, H, W].
  Tensor video(const Tensor& tokens, const Tensor& like) const;

 protected:
  Value forward_tensors(const nn::Values& args) override { return call_tensors(*this, args); }

 private:
  bool has_learned(const Tensor& video) const;  // of this number of frames; diffusers computes those of others
  KeptTable positions_;
};

// adaLN-Zero of two streams: hidden_states[B, N, C], encoder_hidden_states[B, M, C], temb[B, time_embed_dim] -> both
// normalised, shifted and scaled, then the gates [B, C] of either.
struct CogVideoXLayerNormZero : nn::Module {
  nn::Linear linear;
  nn::LayerNorm norm;
  SF_MODULE(CogVideoXLayerNormZero, linear, norm)
  CogVideoXLayerNormZero(int64_t conditioning_dim, int64_t dim, bool elementwise_affine, double eps);
  Tensors forward(const Tensor& hidden_states, const Tensor& encoder_hidden_states, const Tensor& temb) const;
};

struct CogVideoXBlock : CheckpointedModule {
  CogVideoXLayerNormZero norm1;
  Attention attn1;
  CogVideoXLayerNormZero norm2;
  FeedForward ff;
  double dropout;  // of what the feed-forward layer gives, in training
  SF_MODULE(CogVideoXBlock, norm1, attn1, norm2, ff)
  explicit CogVideoXBlock(const CogVideoXTransformer3DConfig& c);
  // hidden_states[B, N, C] of the video, encoder_hidden_states[B, M, C] of the text, temb[B, time_embed_dim] -> both.
  // rotary_cos, rotary_sin: [M + N, R] of the whole sequence, or absent. guide: what guided() is given.
  Tensors forward(const Tensor& hidden_states, const Tensor& encoder_hidden_states, const Tensor& temb,
                  const Tensor& rotary_cos = {}, const Tensor& rotary_sin = {}, const Tensor& guide = {}) const;

 protected:
  // The place where a derived block steers the video: attention reads what this makes of norm1's [B, N, C]. guide is
  // this block's of the tensors that predict() was given, absent where there was none; it may have a gradient.
  virtual Tensor guided(const Tensor& norm_hidden_states, const Tensor& guide) const;
};

struct CogVideoXTransformer3DModel : ConfiguredModel<CogVideoXTransformer3DConfig> {
  static constexpr const char* kName = "CogVideoXTransformer3DModel";
  CogVideoXPatchEmbed patch_embed;
  nn::Dropout embedding_dropout;
  TimestepEmbedding time_embedding;
  std::optional<TimestepEmbedding> ofs_embedding;
  nn::ModuleList<CogVideoXBlock> transformer_blocks;
  nn::LayerNorm norm_final;
  AdaLayerNorm norm_out;
  nn::Linear proj_out;
  SF_MODULE(CogVideoXTransformer3DModel, patch_embed, embedding_dropout, time_embedding, ofs_embedding,
            transformer_blocks, norm_final, norm_out, proj_out)
  explicit CogVideoXTransformer3DModel(Config config = {});
  // hidden_states[B, T, in_channels, H, W] with sides that patch_size divides, and frames that patch_size_t does;
  // encoder_hidden_states[B, M, text_embed_dim]; timestep[] or [B]; ofs[] or [B], with ofs_embed_dim;
  // image_rotary_emb[2, N, R]: cosines, then sines of the patches' positions (rotary_positions_3d), needed with
  // use_rotary_positional_embeddings -> [B, T, out_channels, H, W].
  Tensor forward(const Tensor& hidden_states, const Tensor& encoder_hidden_states, const Tensor& timestep,
                 const Tensor& ofs = {}, const Tensor& image_rotary_emb = {}) const;

 protected:
  // For a class whose blocks are derived from CogVideoXBlock: it makes them, and gives forward's arguments and a guide
  // for each block, or none, to predict(). What the blocks share with the class, such as modules that its own SF_MODULE
  // names, they may hold as shared_ptr.
  using MakeBlock = std::function<std::shared_ptr<CogVideoXBlock>(const Config& config, int64_t i)>;
  CogVideoXTransformer3DModel(Config config, const MakeBlock& make_block);
  Tensor predict(const Tensor& hidden_states, const Tensor& encoder_hidden_states, const Tensor& timestep,
                 const Tensor& ofs, const Tensor& image_rotary_emb, const Tensors& guides) const;

 private:
  Tensor embedded_numbers(const Tensor& timestep, const Tensor& ofs, const Tensor& like) const;  // temb
};

}  // namespace sf::models
