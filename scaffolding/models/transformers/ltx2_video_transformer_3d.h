// LTX2VideoTransformer3DModel: LTX-2's denoiser of videos and their sound (Lightricks 2026, arXiv 2601.03233), LTX-2.0
// and LTX-2.3. Two streams of tokens with weights of their own, a video's and an audio's, that are told a text and
// attend to each other in every block; times in seconds tell which tokens belong together.
#pragma once
#include "scaffolding/models/parts/embeddings.h"
#include "scaffolding/models/transformers/dit_model.h"
#include "scaffolding/models/transformers/ltx2_block.h"

namespace sf::models {

struct LTX2VideoTransformer3DConfig {
  // of the video
  int64_t in_channels = 128;
  std::optional<int64_t> out_channels = 128;  // absent: in_channels
  int64_t patch_size = 1, patch_size_t = 1;
  int64_t num_attention_heads = 32, attention_head_dim = 128;
  int64_t cross_attention_dim = 4096;  // channels of the text in its blocks
  std::vector<int64_t> vae_scale_factors{8, 32, 32};
  int64_t pos_embed_max_pos = 20;                 // seconds, by which times are divided
  int64_t base_height = 2048, base_width = 2048;  // pixels, likewise
  bool gated_attn = false;
  bool cross_attn_mod = false;  // queries of the text, and the text, are modulated (LTX-2.3)
  // of the audio
  int64_t audio_in_channels = 128;
  std::optional<int64_t> audio_out_channels = 128;
  int64_t audio_patch_size = 1, audio_patch_size_t = 1;
  int64_t audio_num_attention_heads = 32, audio_attention_head_dim = 64;
  int64_t audio_cross_attention_dim = 2048;
  int64_t audio_scale_factor = 4;
  int64_t audio_pos_embed_max_pos = 20;
  int64_t audio_sampling_rate = 16000, audio_hop_length = 160;
  bool audio_gated_attn = false, audio_cross_attn_mod = false;
  // of both
  int64_t num_layers = 48;
  std::string activation_fn = "gelu-approximate", qk_norm = "rms_norm_across_heads";
  bool norm_elementwise_affine = false;
  double norm_eps = 1e-6;
  int64_t caption_channels = 3840;  // of the text, with use_prompt_embeddings
  bool attention_bias = true, attention_out_bias = true;
  double rope_theta = 10000;
  bool rope_double_precision = true;
  int64_t causal_offset = 1;
  int64_t timestep_scale_multiplier = 1000, cross_attn_timestep_scale_multiplier = 1000;
  std::string rope_type = "interleaved";
  bool use_prompt_embeddings = true;  // the text is projected (LTX-2.0)
  bool perturbed_attn = false;        // attends as spatio_temporal_guidance_blocks say (LTX-2.3)
  bool ff_bias = true, audio_ff_bias = true;
  bool use_prompt_adaln_single = true;  // the text's modulation depends on the noise
  bool use_keyframes_abs_pos_embedding = false;
  io::Fields fields();

  int64_t video_channels() const { return num_attention_heads * attention_head_dim; }
  int64_t audio_channels() const { return audio_num_attention_heads * audio_attention_head_dim; }
  bool modulates_text() const { return cross_attn_mod || audio_cross_attn_mod; }
  LTX2VideoGrid video_grid() const;  // without a network: rope
  LTX2AudioGrid audio_grid() const;  // audio_rope
};

// adaLN-single (Chen et al. 2023, arXiv 2310.00426): numbers [R] as parts of a modulation.
struct LTX2AdaLayerNormSingle : nn::Module {
  int64_t parts;
  struct Embedder : nn::Module {
    TimestepEmbedding timestep_embedder;
    SF_MODULE(Embedder, timestep_embedder)
    explicit Embedder(int64_t embedding_dim);
    Tensor forward(const Tensor& waves) const;
  };
  Embedder emb;
  nn::Linear linear;  // of SiLU of the embedding
  SF_MODULE(LTX2AdaLayerNormSingle, emb, linear)
  LTX2AdaLayerNormSingle(int64_t embedding_dim, int64_t parts);
  // waves[R, 256] of the numbers -> the modulation [R, parts, dim], and the embedding [R, 1, dim]
  Tensors forward(const Tensor& waves) const;
};

// What the network is called with. Tensors that may be absent are so by default. B: samples; N, L: tokens of the video
// and of the audio; M: of the text.
struct LTX2TransformerInputs {
  Tensor hidden_states;        // [B, N, in_channels], N = frames * rows * columns of patches, in this order
  Tensor audio_hidden_states;  // [B, L, audio_in_channels]
  // [B, M, caption_channels], or with use_prompt_embeddings off [B, M, cross_attention_dim] and [B, M,
  // audio_cross_attention_dim]: the text of either stream, as LTX2TextConnectors gives it
  Tensor encoder_hidden_states, audio_encoder_hidden_states;
  // From 0, signal, to timestep_scale_multiplier, noise: [], [B], or one for each token, [B, N] and [B, L].
  // audio_timestep absent: timestep, which must not be by tokens then.
  Tensor timestep, audio_timestep;
  // [] or [B], likewise scaled: of the modulation of the text (LTX-2.3), and with use_cross_timestep. audio_sigma
  // absent: sigma.
  Tensor sigma, audio_sigma;
  // [B, M]: 1 where the text is seen, 0 where not; or [B, 1, M], added to the scores. Absent: all is seen, which is
  // faster than a mask of ones (LTX2TextConnectors with registers gives such a mask).
  Tensor encoder_attention_mask, audio_encoder_attention_mask;
  // Bounds of patches: [1, 3, N, 2] or [B, 3, N, 2], and [1, 1, L, 2] or [B, 1, L, 2], float32 on the network's device,
  // as rope and audio_rope make them; [1, ...] where all samples have the same, which takes B times less memory. The
  // tables of angles that are made of them are kept where the text's part is (ContextCache) for as long as the tensors
  // are the same ones: a run makes them once and gives them to every call.
  Tensor video_coords, audio_coords;
  // Where there are no video_coords: the video in latents, and frames of pixels a second; where there are no
  // audio_coords: the audio in latents. Coordinates of the last few sizes are kept.
  int64_t num_frames = 0, height = 0, width = 0, audio_num_frames = 0;
  double fps = 24;
  bool isolate_modalities = false;  // the streams do not attend to each other
  // With perturbed_attn: in these blocks self-attention gives tokens their values alone, of samples whose
  // perturbation_mask[B] or [B, 1, 1] is 0 (1: as ever); absent: of all samples, which saves the attention.
  std::vector<int64_t> spatio_temporal_guidance_blocks;
  Tensor perturbation_mask;
  // Each stream's cross-attention to the other is modulated by the other's sigma, not its own timestep (LTX-2.3).
  bool use_cross_timestep = false;
  Tensor video_self_attention_mask;  // [B, N, N] from 0, not seen, to 1
};
struct LTX2TransformerOutput {
  Tensor sample;        // [B, N, out_channels]
  Tensor audio_sample;  // [B, L, audio_out_channels]
};

struct LTX2VideoTransformer3DModel : ConfiguredModel<LTX2VideoTransformer3DConfig> {
  static constexpr const char* kName = "LTX2VideoTransformer3DModel";
  LTX2VideoGrid rope;
  LTX2AudioGrid audio_rope;
  nn::Linear proj_in, audio_proj_in;
  std::optional<DiTTextProjection> caption_projection, audio_caption_projection;
  LTX2AdaLayerNormSingle time_embed, audio_time_embed;
  LTX2AdaLayerNormSingle av_cross_attn_video_scale_shift, av_cross_attn_audio_scale_shift;
  LTX2AdaLayerNormSingle av_cross_attn_video_a2v_gate, av_cross_attn_audio_v2a_gate;
  std::optional<LTX2AdaLayerNormSingle> prompt_adaln, audio_prompt_adaln;
  Tensor scale_shift_table, audio_scale_shift_table;  // [2, C] of the last norms: shift, scale
  nn::ModuleList<LTX2VideoTransformerBlock> transformer_blocks;
  nn::LayerNorm norm_out;
  nn::Linear proj_out;
  nn::LayerNorm audio_norm_out;
  nn::Linear audio_proj_out;
  SF_MODULE(LTX2VideoTransformer3DModel, scale_shift_table, audio_scale_shift_table, proj_in, audio_proj_in,
            caption_projection, audio_caption_projection, time_embed, audio_time_embed, av_cross_attn_video_scale_shift,
            av_cross_attn_audio_scale_shift, av_cross_attn_video_a2v_gate, av_cross_attn_audio_v2a_gate, prompt_adaln,
            audio_prompt_adaln, transformer_blocks, norm_out, proj_out, audio_norm_out, audio_proj_out)
  explicit LTX2VideoTransformer3DModel(Config config = {});

  // rope's and audio_rope's, for Python.
  Tensor prepare_video_coords(int64_t batch_size, int64_t num_frames, int64_t height, int64_t width, Device device,
                              double fps = 24) const;
  Tensor prepare_audio_coords(int64_t batch_size, int64_t num_frames, Device device, int64_t shift = 0) const;

  // The call as C++ makes it: forward's, which hooks see, with its arguments by name.
  LTX2TransformerOutput predict(const LTX2TransformerInputs& inputs) const;
  // As LTX2TransformerInputs; spatio_temporal_guidance_blocks are whole numbers. The video's sample, then the audio's.
  Tensors forward(const Tensor& hidden_states, const Tensor& audio_hidden_states, const Tensor& encoder_hidden_states,
                  const Tensor& audio_encoder_hidden_states, const Tensor& timestep, const Tensor& audio_timestep = {},
                  const Tensor& sigma = {}, const Tensor& audio_sigma = {}, const Tensor& encoder_attention_mask = {},
                  const Tensor& audio_encoder_attention_mask = {}, int64_t num_frames = 0, int64_t height = 0,
                  int64_t width = 0, double fps = 24, int64_t audio_num_frames = 0, const Tensor& video_coords = {},
                  const Tensor& audio_coords = {}, bool isolate_modalities = false,
                  const Floats& spatio_temporal_guidance_blocks = {}, const Tensor& perturbation_mask = {},
                  bool use_cross_timestep = false, const Tensor& video_self_attention_mask = {}) const;

 private:
  Tensors rotary(const Tensor& video_coords, const Tensor& audio_coords) const;
  LTX2Rope video_angles_, audio_angles_, cross_video_angles_, cross_audio_angles_;
  KeptTable video_coords_, audio_coords_;
};

}  // namespace sf::models
