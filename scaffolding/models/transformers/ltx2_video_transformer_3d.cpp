#include "scaffolding/models/transformers/ltx2_video_transformer_3d.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "scaffolding/models/parts/attention.h"
#include "scaffolding/models/parts/config_checks.h"
#include "scaffolding/models/parts/norm.h"
#include "scaffolding/ops/ops.h"

namespace sf::models {

io::Fields LTX2VideoTransformer3DConfig::fields() {
  return {{"in_channels", &in_channels},
          {"out_channels", &out_channels},
          {"patch_size", &patch_size},
          {"patch_size_t", &patch_size_t},
          {"num_attention_heads", &num_attention_heads},
          {"attention_head_dim", &attention_head_dim},
          {"cross_attention_dim", &cross_attention_dim},
          {"vae_scale_factors", &vae_scale_factors},
          {"pos_embed_max_pos", &pos_embed_max_pos},
          {"base_height", &base_height},
          {"base_width", &base_width},
          {"gated_attn", &gated_attn},
          {"cross_attn_mod", &cross_attn_mod},
          {"audio_in_channels", &audio_in_channels},
          {"audio_out_channels", &audio_out_channels},
          {"audio_patch_size", &audio_patch_size},
          {"audio_patch_size_t", &audio_patch_size_t},
          {"audio_num_attention_heads", &audio_num_attention_heads},
          {"audio_attention_head_dim", &audio_attention_head_dim},
          {"audio_cross_attention_dim", &audio_cross_attention_dim},
          {"audio_scale_factor", &audio_scale_factor},
          {"audio_pos_embed_max_pos", &audio_pos_embed_max_pos},
          {"audio_sampling_rate", &audio_sampling_rate},
          {"audio_hop_length", &audio_hop_length},
          {"audio_gated_attn", &audio_gated_attn},
          {"audio_cross_attn_mod", &audio_cross_attn_mod},
          {"num_layers", &num_layers},
          {"activation_fn", &activation_fn},
          {"qk_norm", &qk_norm},
          {"norm_elementwise_affine", &norm_elementwise_affine},
          {"norm_eps", &norm_eps},
          {"caption_channels", &caption_channels},
          {"attention_bias", &attention_bias},
          {"attention_out_bias", &attention_out_bias},
          {"rope_theta", &rope_theta},
          {"rope_double_precision", &rope_double_precision},
          {"causal_offset", &causal_offset},
          {"timestep_scale_multiplier", &timestep_scale_multiplier},
          {"cross_attn_timestep_scale_multiplier", &cross_attn_timestep_scale_multiplier},
          {"rope_type", &rope_type},
          {"use_prompt_embeddings", &use_prompt_embeddings},
          {"perturbed_attn", &perturbed_attn},
          {"ff_bias", &ff_bias},
          {"audio_ff_bias", &audio_ff_bias},
          {"use_prompt_adaln_single", &use_prompt_adaln_single},
          {"use_keyframes_abs_pos_embedding", &use_keyframes_abs_pos_embedding}};
}

LTX2VideoGrid LTX2VideoTransformer3DConfig::video_grid() const {
  return {patch_size, patch_size_t, vae_scale_factors, causal_offset};
}
LTX2AudioGrid LTX2VideoTransformer3DConfig::audio_grid() const {
  return {audio_patch_size_t, audio_scale_factor, audio_sampling_rate, audio_hop_length, causal_offset};
}

namespace {

using LTX2Config = LTX2VideoTransformer3DConfig;
const char* const kLTX2 = LTX2VideoTransformer3DModel::kName;
constexpr int64_t kLTX2Waves = 256;  // of a number's embedding
constexpr double kLTX2OutEps = 1e-6;
constexpr size_t kLTX2Axes = 3;  // seconds, rows, columns

LTX2Config checked(LTX2Config c) {
  check_sizes(kLTX2, {{"in_channels", c.in_channels},
                      {"out_channels", c.out_channels.value_or(1)},
                      {"patch_size", c.patch_size},
                      {"patch_size_t", c.patch_size_t},
                      {"num_attention_heads", c.num_attention_heads},
                      {"attention_head_dim", c.attention_head_dim},
                      {"cross_attention_dim", c.cross_attention_dim},
                      {"pos_embed_max_pos", c.pos_embed_max_pos},
                      {"base_height", c.base_height},
                      {"base_width", c.base_width},
                      {"audio_in_channels", c.audio_in_channels},
                      {"audio_out_channels", c.audio_out_channels.value_or(1)},
                      {"audio_patch_size", c.audio_patch_size},
                      {"audio_patch_size_t", c.audio_patch_size_t},
                      {"audio_num_attention_heads", c.audio_num_attention_heads},
                      {"audio_attention_head_dim", c.audio_attention_head_dim},
                      {"audio_cross_attention_dim", c.audio_cross_attention_dim},
                      {"audio_scale_factor", c.audio_scale_factor},
                      {"audio_pos_embed_max_pos", c.audio_pos_embed_max_pos},
                      {"audio_sampling_rate", c.audio_sampling_rate},
                      {"audio_hop_length", c.audio_hop_length},
                      {"caption_channels", c.caption_channels},
                      {"timestep_scale_multiplier", c.timestep_scale_multiplier},
                      {"cross_attn_timestep_scale_multiplier", c.cross_attn_timestep_scale_multiplier}});
  check_num_layers(kLTX2, c.num_layers);
  SF_CHECK_AS(NotSupported, c.qk_norm == "rms_norm_across_heads", kLTX2,
              ": qk_norm must be rms_norm_across_heads, got '", c.qk_norm, "'");
  SF_CHECK_AS(NotSupported, !c.use_keyframes_abs_pos_embedding, kLTX2,
              ": use_keyframes_abs_pos_embedding is LTX-2.5's, which is not supported");
  SF_CHECK(c.vae_scale_factors.size() == kLTX2Axes, kLTX2,
           ": vae_scale_factors must have 3 numbers, of frames, rows and columns, got ", c.vae_scale_factors.size());
  for (const int64_t n : c.vae_scale_factors)
    SF_CHECK(n > 0 && n <= kMostChannels, kLTX2, ": vae_scale_factors must be between 1 and ", kMostChannels, ", got ",
             n);
  SF_CHECK(c.rope_theta > 0, kLTX2, ": rope_theta must be above 0, got ", c.rope_theta);
  const bool splits = ltx2_rope_type(kLTX2, c.rope_type) == LTX2RopeType::Split;
  for (auto& [name, heads, channels] : {std::tuple{"num_attention_heads", c.num_attention_heads, c.video_channels()},
                                        {"audio_num_attention_heads", c.audio_num_attention_heads, c.audio_channels()},
                                        {"num_attention_heads", c.num_attention_heads, c.audio_channels()}})
    SF_CHECK(channels % (splits ? 2 * heads : 2) == 0 && channels % heads == 0, kLTX2, ": ", name,
             splits ? " must divide half of the channels" : " must divide an even number of channels", ", got ", heads,
             " and ", channels);
  SF_CHECK(c.audio_cross_attention_dim == c.audio_channels(), kLTX2,
           ": audio_cross_attention_dim must be audio_num_attention_heads * audio_attention_head_dim, got ",
           c.audio_cross_attention_dim, " and ", c.audio_channels());
  SF_CHECK(!(c.use_prompt_embeddings || c.modulates_text()) || c.cross_attention_dim == c.video_channels(), kLTX2,
           ": cross_attention_dim must be num_attention_heads * attention_head_dim with use_prompt_embeddings, "
           "cross_attn_mod or audio_cross_attn_mod, got ",
           c.cross_attention_dim, " and ", c.video_channels());
  return c;
}

LTX2BlockOptions block_of(const LTX2Config& c) {
  return {.heads = c.num_attention_heads,
          .dim_head = c.attention_head_dim,
          .text_dim = c.cross_attention_dim,
          .audio_heads = c.audio_num_attention_heads,
          .audio_dim_head = c.audio_attention_head_dim,
          .audio_text_dim = c.audio_cross_attention_dim,
          .gated = c.gated_attn,
          .modulates_queries = c.cross_attn_mod,
          .audio_gated = c.audio_gated_attn,
          .audio_modulates_queries = c.audio_cross_attn_mod,
          .modulates_text = c.modulates_text(),
          .attention_bias = c.attention_bias,
          .attention_out_bias = c.attention_out_bias,
          .ff_bias = c.ff_bias,
          .audio_ff_bias = c.audio_ff_bias,
          .activation_fn = c.activation_fn,
          .norm_eps = c.norm_eps,
          .norm_elementwise_affine = c.norm_elementwise_affine,
          .rope_type = ltx2_rope_type(kLTX2, c.rope_type)};
}

LTX2RopeOptions rope_of(const LTX2Config& c, int64_t dim, int64_t heads, std::vector<double> max_positions) {
  return {
      dim, heads, std::move(max_positions), c.rope_theta, c.rope_double_precision, ltx2_rope_type(kLTX2, c.rope_type)};
}
double most_seconds(const LTX2Config& c) { return double(std::max(c.pos_embed_max_pos, c.audio_pos_embed_max_pos)); }

Tensor out_table(int64_t channels) { return nn::parameter(randn({2, channels}) / std::sqrt(double(channels))); }

// Numbers [], [1] or [B] of samples, or [B, tokens] of their tokens, as [B] or [B * tokens].
Tensor numbers_of(const char* name, const Tensor& t, int64_t batch, int64_t tokens, const Device& device) {
  check_defined(kLTX2, name, t);
  const bool by_tokens = tokens > 0 && t.ndim() == 2 && t.size(0) == batch && t.size(1) == tokens,
             one = t.ndim() <= 1 && t.numel() == 1;
  SF_CHECK(by_tokens || one || (t.ndim() >= 1 && t.ndim() <= 2 && t.size(0) == batch && t.numel() == batch), kLTX2,
           ": ", name, " must be one number or [", batch, "]", tokens > 0 ? " or a number for each token" : "",
           ", got ", t.shape());
  const Tensor there = t.to(device).reshape({-1});
  return one ? there.expand({batch}) : there;
}

Tensor waves_of(const Tensor& numbers, DType dtype) {
  return timestep_embedding(numbers, kLTX2Waves, {.flip_sin_to_cos = true, .downscale_freq_shift = 0}).to(dtype);
}

// Both tables of a stream's tokens as one flat tensor, which caches keep: cosines and sines within the stream, then
// those of attention to the other one.
Tensor flat_tables(const LTX2Rope& own, const LTX2Rope& cross, const Tensor& coords) {
  const Tensor places = ltx2_positions(coords);
  const LTX2Rotary within = own.tables(places), across = cross.tables(places.narrow(1, 0, 1));
  return cat({within.cos.flatten(), within.sin.flatten(), across.cos.flatten(), across.sin.flatten()}, 0);
}
Tensors of_flat_tables(const Tensor& flat, const LTX2Rope& own, const LTX2Rope& cross, const Tensor& coords) {
  const int64_t batch = coords.size(0), n = coords.size(2);
  Tensors tables;
  int64_t at = 0;
  for (const LTX2Rope* rope : {&own, &own, &cross, &cross}) {
    const LTX2RopeOptions& o = rope->options();
    tables.push_back(flat.narrow(0, at, batch * n * o.dim).view({batch, n, o.heads, o.dim / o.heads}));
    at += batch * n * o.dim;
  }
  return tables;
}

// The last norm, modulated by the embedding [R, 1, C] and the table, and the last layer.
Tensor finished(const nn::LayerNorm& norm, const nn::Linear& proj, const Tensor& table, const Tensor& embedded,
                const Tensor& x) {
  const Tensor shift = embedded.select(1, 0) + table.select(0, 0), scale = embedded.select(1, 0) + table.select(0, 1);
  return project(proj, NormedTokens(norm, x).modulated(scale, shift));
}

}  // namespace

LTX2AdaLayerNormSingle::Embedder::Embedder(int64_t embedding_dim) : timestep_embedder(kLTX2Waves, embedding_dim) {}
Tensor LTX2AdaLayerNormSingle::Embedder::forward(const Tensor& waves) const { return timestep_embedder(waves); }

LTX2AdaLayerNormSingle::LTX2AdaLayerNormSingle(int64_t embedding_dim, int64_t n)
    : parts(n), emb(embedding_dim), linear(embedding_dim, n * embedding_dim) {}

Tensors LTX2AdaLayerNormSingle::forward(const Tensor& waves) const {
  const Tensor embedded = emb(waves);
  return {linear(silu(embedded)).reshape({waves.size(0), parts, -1}), embedded.unsqueeze(1)};
}

LTX2VideoTransformer3DModel::LTX2VideoTransformer3DModel(Config config)
    : ConfiguredModel(checked(std::move(config))),
      rope(options.video_grid()),
      audio_rope(options.audio_grid()),
      proj_in(options.in_channels, options.video_channels()),
      audio_proj_in(options.audio_in_channels, options.audio_channels()),
      time_embed(options.video_channels(), options.cross_attn_mod ? 9 : 6),
      audio_time_embed(options.audio_channels(), options.audio_cross_attn_mod ? 9 : 6),
      av_cross_attn_video_scale_shift(options.video_channels(), 4),
      av_cross_attn_audio_scale_shift(options.audio_channels(), 4),
      av_cross_attn_video_a2v_gate(options.video_channels(), 1),
      av_cross_attn_audio_v2a_gate(options.audio_channels(), 1),
      scale_shift_table(out_table(options.video_channels())),
      audio_scale_shift_table(out_table(options.audio_channels())),
      norm_out(Shape{options.video_channels()}, kLTX2OutEps, false),
      proj_out(options.video_channels(), options.out_channels.value_or(options.in_channels)),
      audio_norm_out(Shape{options.audio_channels()}, kLTX2OutEps, false),
      audio_proj_out(options.audio_channels(), options.audio_out_channels.value_or(options.audio_in_channels)),
      video_angles_(
          rope_of(options, options.video_channels(), options.num_attention_heads,
                  {double(options.pos_embed_max_pos), double(options.base_height), double(options.base_width)})),
      audio_angles_(rope_of(options, options.audio_channels(), options.audio_num_attention_heads,
                            {double(options.audio_pos_embed_max_pos)})),
      cross_video_angles_(
          rope_of(options, options.audio_cross_attention_dim, options.num_attention_heads, {most_seconds(options)})),
      cross_audio_angles_(rope_of(options, options.audio_cross_attention_dim, options.audio_num_attention_heads,
                                  {most_seconds(options)})) {
  if (options.use_prompt_embeddings) {
    caption_projection.emplace(options.caption_channels, options.video_channels());
    audio_caption_projection.emplace(options.caption_channels, options.audio_channels());
  }
  if (options.modulates_text() && options.use_prompt_adaln_single) {
    prompt_adaln.emplace(options.video_channels(), 2);
    audio_prompt_adaln.emplace(options.audio_channels(), 2);
  }
  const LTX2BlockOptions block = block_of(options);
  for (int64_t i = 0; i < options.num_layers; ++i) transformer_blocks.emplace_back(block);
}

Tensor LTX2VideoTransformer3DModel::prepare_video_coords(int64_t batch_size, int64_t num_frames, int64_t height,
                                                         int64_t width, Device device, double fps) const {
  return rope.prepare_video_coords(batch_size, num_frames, height, width, device, fps);
}
Tensor LTX2VideoTransformer3DModel::prepare_audio_coords(int64_t batch_size, int64_t num_frames, Device device,
                                                         int64_t shift) const {
  return audio_rope.prepare_audio_coords(batch_size, num_frames, device, shift);
}

LTX2TransformerOutput LTX2VideoTransformer3DModel::predict(const LTX2TransformerInputs& in) const {
  const Floats blocks(in.spatio_temporal_guidance_blocks.begin(), in.spatio_temporal_guidance_blocks.end());
  const Tensors y = (*this)(
      in.hidden_states, in.audio_hidden_states, in.encoder_hidden_states, in.audio_encoder_hidden_states, in.timestep,
      in.audio_timestep, in.sigma, in.audio_sigma, in.encoder_attention_mask, in.audio_encoder_attention_mask,
      in.num_frames, in.height, in.width, in.fps, in.audio_num_frames, in.video_coords, in.audio_coords,
      in.isolate_modalities, blocks, in.perturbation_mask, in.use_cross_timestep, in.video_self_attention_mask);
  SF_CHECK_AS(RuntimeError, y.size() == 2, kLTX2, ": must return the video's sample and the audio's, got ",
              int64_t(y.size()), " tensors");
  return {y[0], y[1]};
}

// LTX2VideoTransformerBlock's. The layers that make tokens stand for theirs in the cache of what a run keeps.
Tensors LTX2VideoTransformer3DModel::rotary(const Tensor& video_coords, const Tensor& audio_coords) const {
  const Tensor video = project_text({&proj_in}, video_coords, [this](const Tensor& coords) {
    return flat_tables(video_angles_, cross_video_angles_, coords);
  });
  const Tensor audio = project_text({&audio_proj_in}, audio_coords, [this](const Tensor& coords) {
    return flat_tables(audio_angles_, cross_audio_angles_, coords);
  });
  const Tensors v = of_flat_tables(video, video_angles_, cross_video_angles_, video_coords),
                a = of_flat_tables(audio, audio_angles_, cross_audio_angles_, audio_coords);
  return {v[0], v[1], a[0], a[1], v[2], v[3], a[2], a[3]};
}

Tensors LTX2VideoTransformer3DModel::forward(
    const Tensor& hidden_states, const Tensor& audio_hidden_states, const Tensor& encoder_hidden_states,
    const Tensor& audio_encoder_hidden_states, const Tensor& timestep, const Tensor& audio_timestep,
    const Tensor& sigma, const Tensor& audio_sigma, const Tensor& encoder_attention_mask,
    const Tensor& audio_encoder_attention_mask, int64_t num_frames, int64_t height, int64_t width, double fps,
    int64_t audio_num_frames, const Tensor& video_coords, const Tensor& audio_coords, bool isolate_modalities,
    const Floats& spatio_temporal_guidance_blocks, const Tensor& perturbation_mask, bool use_cross_timestep,
    const Tensor& video_self_attention_mask) const {
  const Config& c = options;
  // ---- what was given
  for (auto& [name, t, channels] : {std::tuple{"hidden_states", &hidden_states, c.in_channels},
                                    {"audio_hidden_states", &audio_hidden_states, c.audio_in_channels}}) {
    check_defined(kLTX2, name, *t);
    SF_CHECK(t->ndim() == 3 && t->numel() > 0 && t->size(2) == channels, kLTX2, ": ", name, " must be [B, tokens, ",
             channels, "], got ", t->shape());
  }
  const int64_t batch = hidden_states.size(0), tokens = hidden_states.size(1), sounds = audio_hidden_states.size(1);
  SF_CHECK(audio_hidden_states.size(0) == batch, kLTX2, ": audio_hidden_states must have ", batch, " samples, got ",
           audio_hidden_states.shape());
  for (auto& [name, t, channels] : {std::tuple{"encoder_hidden_states", &encoder_hidden_states,
                                               c.use_prompt_embeddings ? c.caption_channels : c.cross_attention_dim},
                                    {"audio_encoder_hidden_states", &audio_encoder_hidden_states,
                                     c.use_prompt_embeddings ? c.caption_channels : c.audio_cross_attention_dim}}) {
    check_defined(kLTX2, name, *t);
    SF_CHECK(t->ndim() == 3 && t->size(0) == batch && t->size(1) > 0 && t->size(2) == channels, kLTX2, ": ", name,
             " must be [", batch, ", M, ", channels, "], got ", t->shape());
  }
  const Device device = hidden_states.device();
  const DType dtype = hidden_states.dtype();
  auto coords_of = [&](const char* name, const Tensor& given, int64_t axes, int64_t n, auto&& make) {
    const Tensor t = given ? given.to(device).to(kFloat32) : make();
    SF_CHECK(t.ndim() == 4 && (t.size(0) == 1 || t.size(0) == batch) && t.size(1) == axes && t.size(2) == n &&
                 t.size(3) == 2,
             kLTX2, ": ", name, " must be [1, ", axes, ", ", n, ", 2] or [", batch, ", ", axes, ", ", n, ", 2], got ",
             t.shape());
    return t;
  };
  const Tensor video_places = coords_of("video_coords", video_coords, int64_t(kLTX2Axes), tokens, [&] {
    SF_CHECK(num_frames > 0 && height > 0 && width > 0, kLTX2,
             ": needs video_coords, or num_frames, height and width of the latents");
    return video_coords_.of({num_frames, height, width, std::bit_cast<int64_t>(fps)}, hidden_states, kFloat32,
                            [&] { return rope.prepare_video_coords(1, num_frames, height, width, device, fps); });
  });
  const Tensor audio_places = coords_of("audio_coords", audio_coords, 1, sounds, [&] {
    SF_CHECK(audio_num_frames > 0, kLTX2, ": needs audio_coords, or audio_num_frames of the latents");
    return audio_coords_.of({audio_num_frames}, hidden_states, kFloat32,
                            [&] { return audio_rope.prepare_audio_coords(1, audio_num_frames, device); });
  });
  const Tensor text_mask = attention_bias(kLTX2, "encoder_attention_mask", encoder_attention_mask, dtype),
               audio_text_mask =
                   attention_bias(kLTX2, "audio_encoder_attention_mask", audio_encoder_attention_mask, dtype);
  check_shape(kLTX2, "video_self_attention_mask", video_self_attention_mask, {batch, tokens, tokens});
  const Tensor self_mask = video_self_attention_mask ? (1 - video_self_attention_mask.to(dtype)) * -10000.0 : Tensor();
  std::vector<bool> perturbed(size_t(c.num_layers), false);
  for (const double i : spatio_temporal_guidance_blocks) {
    SF_CHECK(i >= 0 && i < double(c.num_layers) && i == std::floor(i), kLTX2,
             ": spatio_temporal_guidance_blocks must be numbers of blocks, from 0 to ", c.num_layers - 1, ", got ", i);
    perturbed[size_t(i)] = c.perturbed_attn;
  }
  SF_CHECK(!perturbation_mask || (perturbation_mask.numel() == batch && perturbation_mask.size(0) == batch), kLTX2,
           ": perturbation_mask must be [", batch, "] or [", batch, ", 1, 1], got ",
           perturbation_mask ? perturbation_mask.shape() : Shape());
  const Tensor share = perturbation_mask ? perturbation_mask.to(device).reshape({batch, 1, 1}) : Tensor();

  // ---- what all blocks are told
  const double gate_scale = double(c.cross_attn_timestep_scale_multiplier) / double(c.timestep_scale_multiplier);
  const Tensor time = numbers_of("timestep", timestep, batch, tokens, device),
               audio_time = audio_timestep ? numbers_of("audio_timestep", audio_timestep, batch, sounds, device)
                                           : numbers_of("timestep", timestep, batch, 0, device);
  Tensor noise, audio_noise;
  if (prompt_adaln || use_cross_timestep) {
    noise = numbers_of("sigma", sigma, batch, 0, device);
    audio_noise = audio_sigma ? numbers_of("audio_sigma", audio_sigma, batch, 0, device) : noise;
  }
  const Tensor waves = waves_of(time, dtype), audio_waves = waves_of(audio_time, dtype);
  // of attention to the other stream: its norm's numbers, and the gate's
  auto cross_waves = [&](const Tensor& own, const Tensor& own_waves, const Tensor& other_noise) {
    const Tensor numbers = use_cross_timestep ? other_noise : own;
    const Tensor first = use_cross_timestep ? waves_of(numbers, dtype) : own_waves;
    return std::pair{first, gate_scale == 1 ? first : waves_of(numbers * gate_scale, dtype)};
  };
  const auto [cross, cross_gate] = cross_waves(time, waves, audio_noise);
  const auto [audio_cross, audio_cross_gate] = cross_waves(audio_time, audio_waves, noise);
  const Tensors video_time = time_embed(waves), sound_time = audio_time_embed(audio_waves);
  Tensors modulation{video_time[0],
                     av_cross_attn_video_scale_shift(cross)[0],
                     av_cross_attn_video_a2v_gate(cross_gate)[0],
                     sound_time[0],
                     av_cross_attn_audio_scale_shift(audio_cross)[0],
                     av_cross_attn_audio_v2a_gate(audio_cross_gate)[0]};
  if (prompt_adaln) {
    modulation.push_back((*prompt_adaln)(waves_of(noise, dtype))[0]);
    modulation.push_back((*audio_prompt_adaln)(waves_of(audio_noise, dtype))[0]);
  }
  const Tensors turns = rotary(video_places, audio_places);
  auto projected = [](const std::optional<DiTTextProjection>& p, const Tensor& t) { return p ? (*p)(t) : t; };
  const Tensor text = projected(caption_projection, encoder_hidden_states),
               audio_text = projected(audio_caption_projection, audio_encoder_hidden_states);

  // ---- the network
  Tensor x = project(proj_in, hidden_states), a = project(audio_proj_in, audio_hidden_states);
  size_t i = 0;
  for (auto& block : transformer_blocks) {
    const bool here = perturbed[i++];
    const Tensors both = block(x, a, text, audio_text, modulation, turns, text_mask, audio_text_mask, self_mask,
                               isolate_modalities, here && !share, here ? share : Tensor());
    x = both[0], a = both[1];
  }
  return {finished(norm_out, proj_out, scale_shift_table, video_time[1], x),
          finished(audio_norm_out, audio_proj_out, audio_scale_shift_table, sound_time[1], a)};
}

SF_MODEL(LTX2VideoTransformer3DModel)
    .doc(
        "diffusers' LTX2VideoTransformer3DModel: noisy tokens of a video [B, N, C] and of its sound [B, L, A], texts "
        "and timesteps to predictions of both.")
    .forward<&LTX2VideoTransformer3DModel::forward>(
        "hidden_states, audio_hidden_states, encoder_hidden_states, audio_encoder_hidden_states, timestep, "
        "audio_timestep=None, sigma=None, audio_sigma=None, encoder_attention_mask=None, "
        "audio_encoder_attention_mask=None, num_frames=0, height=0, width=0, fps=24.0, audio_num_frames=0, "
        "video_coords=None, audio_coords=None, isolate_modalities=False, spatio_temporal_guidance_blocks=[], "
        "perturbation_mask=None, use_cross_timestep=False, video_self_attention_mask=None")
    .method<&LTX2VideoTransformer3DModel::prepare_video_coords>("prepare_video_coords",
                                                                "batch_size, num_frames, height, width, device, "
                                                                "fps=24.0")
    .method<&LTX2VideoTransformer3DModel::prepare_audio_coords>("prepare_audio_coords",
                                                                "batch_size, num_frames, device, shift=0");

}  // namespace sf::models
