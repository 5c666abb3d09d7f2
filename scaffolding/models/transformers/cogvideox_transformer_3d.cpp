#include "scaffolding/models/transformers/cogvideox_transformer_3d.h"

#include <algorithm>

#include "scaffolding/models/parts/config_checks.h"
#include "scaffolding/ops/ops.h"

namespace sf::models {

io::Fields CogVideoXTransformer3DConfig::fields() {
  return {{"num_attention_heads", &num_attention_heads},
          {"attention_head_dim", &attention_head_dim},
          {"in_channels", &in_channels},
          {"out_channels", &out_channels},
          {"flip_sin_to_cos", &flip_sin_to_cos},
          {"freq_shift", &freq_shift},
          {"time_embed_dim", &time_embed_dim},
          {"ofs_embed_dim", &ofs_embed_dim},
          {"text_embed_dim", &text_embed_dim},
          {"num_layers", &num_layers},
          {"dropout", &dropout},
          {"attention_bias", &attention_bias},
          {"sample_width", &sample_width},
          {"sample_height", &sample_height},
          {"sample_frames", &sample_frames},
          {"patch_size", &patch_size},
          {"patch_size_t", &patch_size_t},
          {"temporal_compression_ratio", &temporal_compression_ratio},
          {"max_text_seq_length", &max_text_seq_length},
          {"activation_fn", &activation_fn},
          {"timestep_activation_fn", &timestep_activation_fn},
          {"norm_elementwise_affine", &norm_elementwise_affine},
          {"norm_eps", &norm_eps},
          {"spatial_interpolation_scale", &spatial_interpolation_scale},
          {"temporal_interpolation_scale", &temporal_interpolation_scale},
          {"use_rotary_positional_embeddings", &use_rotary_positional_embeddings},
          {"use_learned_positional_embeddings", &use_learned_positional_embeddings},
          {"patch_bias", &patch_bias}};
}

namespace {

using Config = CogVideoXTransformer3DConfig;

constexpr double kQueryKeyEps = 1e-6;

bool adds_positions(const Config& c) {
  return !c.use_rotary_positional_embeddings || c.use_learned_positional_embeddings;
}

Config checked(Config c) {
  const char* who = CogVideoXTransformer3DModel::kName;
  check_sizes(who, {{"num_attention_heads", c.num_attention_heads},
                    {"attention_head_dim", c.attention_head_dim},
                    {"in_channels", c.in_channels},
                    {"out_channels", c.out_channels},
                    {"time_embed_dim", c.time_embed_dim},
                    {"ofs_embed_dim", c.ofs_embed_dim.value_or(1)},
                    {"text_embed_dim", c.text_embed_dim},
                    {"sample_width", c.sample_width},
                    {"sample_height", c.sample_height},
                    {"sample_frames", c.sample_frames},
                    {"patch_size", c.patch_size},
                    {"patch_size_t", c.patch_size_t.value_or(1)},
                    {"temporal_compression_ratio", c.temporal_compression_ratio},
                    {"max_text_seq_length", c.max_text_seq_length}});
  check_num_layers(who, c.num_layers);
  const int64_t channels = token_channels(c);
  SF_CHECK(channels % 2 == 0, who, ": num_attention_heads * attention_head_dim must be even, got ", channels);
  SF_CHECK(!adds_positions(c) || channels % 16 == 0, who,
           ": num_attention_heads * attention_head_dim must be a multiple of 16 where positions are added, got ",
           channels);
  SF_CHECK(!adds_positions(c) || c.patch_size_t.value_or(1) == 1, who,
           ": patch_size_t above 1 needs rotary positions that are not learned, got ", c.patch_size_t.value_or(1));
  SF_CHECK(c.use_rotary_positional_embeddings || !c.use_learned_positional_embeddings, who,
           ": use_learned_positional_embeddings needs use_rotary_positional_embeddings");
  SF_CHECK(!c.ofs_embed_dim || *c.ofs_embed_dim == c.time_embed_dim, who,
           ": ofs_embed_dim must be time_embed_dim, to which it is added, got ", c.ofs_embed_dim.value_or(0), " and ",
           c.time_embed_dim);
  SF_CHECK(c.patch_size <= std::min(c.sample_width, c.sample_height), who,
           ": patch_size must be at most sample_width and sample_height, got ", c.patch_size);
  SF_CHECK(c.spatial_interpolation_scale > 0 && c.temporal_interpolation_scale > 0, who,
           ": spatial_interpolation_scale and temporal_interpolation_scale must be above 0, got ",
           c.spatial_interpolation_scale, " and ", c.temporal_interpolation_scale);
  SF_CHECK_AS(NotSupported, c.timestep_activation_fn == "silu", who, ": timestep_activation_fn must be silu, got '",
              c.timestep_activation_fn, "'");
  return c;
}

int64_t patch_elements(const Config& c) { return c.patch_size * c.patch_size * c.patch_size_t.value_or(1); }

// Patches that positions are kept for.
VideoGrid sample_grid(const Config& c) {
  return {(c.sample_frames - 1) / c.temporal_compression_ratio + 1, c.sample_height / c.patch_size,
          c.sample_width / c.patch_size};
}

Tensor sincos(const Config& c, const VideoGrid& g, std::optional<Device> device = {}) {
  return sincos_positions_3d(token_channels(c), g, c.spatial_interpolation_scale, c.temporal_interpolation_scale,
                             device)
      .reshape({1, g.frames * g.height * g.width, token_channels(c)});
}

}  // namespace

// ---- patches

CogVideoXPatchEmbed::CogVideoXPatchEmbed(const Config& c) : options(c), text_proj(c.text_embed_dim, token_channels(c)) {
  const int64_t channels = token_channels(c);
  if (c.patch_size_t) linear.emplace(c.in_channels * patch_elements(c), channels);
  else
    conv.emplace(c.in_channels, channels, nn::Ints(c.patch_size),
                 nn::ConvOptions{.stride = nn::Ints(c.patch_size), .bias = c.patch_bias});
  if (c.use_learned_positional_embeddings)
    pos_embedding = cat({zeros({1, c.max_text_seq_length, channels}), sincos(c, sample_grid(c))}, 1);
}

void CogVideoXPatchEmbed::visit(nn::Visitor& v) {
  const char* names = "proj, text_proj, pos_embedding";
  if (linear) visit_members(v, names, linear, text_proj, pos_embedding);
  else visit_members(v, names, conv, text_proj, pos_embedding);
}

void CogVideoXPatchEmbed::check(const char* who, const Tensor& text, const Tensor& video) const {
  const Config& c = options;
  check_defined(who, "hidden_states", video);
  const Shape& shape = video.shape();
  SF_CHECK(shape.size() == 5 && shape[1] > 0 && shape[2] == c.in_channels, who, ": hidden_states must be [B, T, ",
           c.in_channels, ", H, W], got ", shape);
  SF_CHECK(shape[3] > 0 && shape[4] > 0 && shape[3] % c.patch_size == 0 && shape[4] % c.patch_size == 0, who,
           ": patch_size ", c.patch_size, " must divide height and width, got ", shape);
  SF_CHECK(shape[1] % c.patch_size_t.value_or(1) == 0, who, ": patch_size_t ", c.patch_size_t.value_or(1),
           " must divide the number of frames, got ", shape);
  check_defined(who, "encoder_hidden_states", text);
  SF_CHECK(text.ndim() == 3 && text.size(0) == shape[0] && text.size(2) == c.text_embed_dim, who,
           ": encoder_hidden_states must be [", shape[0], ", M, ", c.text_embed_dim, "], got ", text.shape());
  if (!c.use_learned_positional_embeddings) return;
  SF_CHECK(shape[3] == c.sample_height && shape[4] == c.sample_width, who, ": learned positions are of sample_height ",
           c.sample_height, " and sample_width ", c.sample_width, ", got ", shape);
  SF_CHECK(text.size(1) == c.max_text_seq_length, who, ": learned positions are of max_text_seq_length ",
           c.max_text_seq_length, ", got encoder_hidden_states ", text.shape());
}

VideoGrid CogVideoXPatchEmbed::grid(const Tensor& video) const {
  return {video.size(1) / options.patch_size_t.value_or(1), video.size(3) / options.patch_size,
          video.size(4) / options.patch_size};
}

bool CogVideoXPatchEmbed::has_learned(const Tensor& video) const {
  return options.use_learned_positional_embeddings &&
         (video.size(1) - 1) * options.temporal_compression_ratio + 1 == options.sample_frames;
}

Tensor CogVideoXPatchEmbed::forward(const Tensor& text, const Tensor& video) const {
  const int64_t batch = video.size(0), channels = token_channels(options), p = options.patch_size,
                pt = options.patch_size_t.value_or(1);
  const VideoGrid g = grid(video);
  Tensor x;
  if (conv) {
    x = (*conv)(video.flatten(0, 1)).flatten(2).transpose(1, 2).reshape({batch, -1, channels});
  } else {
    // a patch's channels, then its frames, rows and columns
    x = video.reshape({batch, g.frames, pt, options.in_channels, g.height, p, g.width, p})
            .permute({0, 1, 4, 6, 3, 2, 5, 7})
            .reshape({batch, g.frames * g.height * g.width, -1});
    x = project(*linear, x);
  }
  const Tensor words = project_text(text_proj, text);
  if (has_learned(video)) return cat({words, x}, 1) + pos_embedding.to(x.dtype());
  if (adds_positions(options))
    x = x + positions_.of({g.frames, g.height, g.width}, x, x.dtype(), [&] { return sincos(options, g, x.device()); });
  return cat({words, x}, 1);
}

Tensor CogVideoXPatchEmbed::video(const Tensor& tokens, const Tensor& like) const {
  const int64_t batch = like.size(0), p = options.patch_size, pt = options.patch_size_t.value_or(1),
                channels = tokens.size(2) / patch_elements(options);
  const VideoGrid g = grid(like);
  return tokens.reshape({batch, g.frames, g.height, g.width, channels, pt, p, p})
      .permute({0, 1, 5, 4, 2, 6, 3, 7})
      .reshape({batch, like.size(1), channels, like.size(3), like.size(4)});
}

// ---- blocks

CogVideoXLayerNormZero::CogVideoXLayerNormZero(int64_t conditioning_dim, int64_t dim, bool elementwise_affine,
                                               double eps)
    : linear(conditioning_dim, 6 * dim), norm(Shape{dim}, eps, elementwise_affine) {}

Tensors CogVideoXLayerNormZero::forward(const Tensor& hidden_states, const Tensor& encoder_hidden_states,
                                        const Tensor& temb) const {
  const Tensors m = chunk(linear(silu(temb)), 6, 1);  // shift, scale and gate of the video, then of the text
  return {modulated(norm, hidden_states, m[1], m[0]), modulated(norm, encoder_hidden_states, m[4], m[3]), m[2], m[5]};
}

CogVideoXBlock::CogVideoXBlock(const Config& c)
    : norm1(c.time_embed_dim, token_channels(c), c.norm_elementwise_affine, c.norm_eps),
      attn1(token_channels(c), {.heads = c.num_attention_heads,
                                .dim_head = c.attention_head_dim,
                                .bias = c.attention_bias,
                                .eps = kQueryKeyEps,
                                .qk_layer_norm = true}),
      norm2(c.time_embed_dim, token_channels(c), c.norm_elementwise_affine, c.norm_eps),
      ff(token_channels(c), {.activation_fn = c.activation_fn, .dropout = c.dropout}),
      dropout(c.dropout) {}

Tensor CogVideoXBlock::guided(const Tensor& norm_hidden_states, const Tensor&) const { return norm_hidden_states; }

Tensors CogVideoXBlock::forward(const Tensor& hidden_states, const Tensor& encoder_hidden_states, const Tensor& temb,
                                const Tensor& rotary_cos, const Tensor& rotary_sin, const Tensor& guide) const {
  auto block = [this, rotary_cos, rotary_sin](const Tensors& in) -> Tensors {
    const int64_t words = in[1].size(1), patches = in[0].size(1);
    // Text and video behind each other, as attention and the feed-forward layer have them, beside their own.
    auto added = [&](const Tensor& video, const Tensor& text, const Tensors& norm, const Tensor& y) -> Tensors {
      return {gated_residual(video, norm[2], y.narrow(1, words, patches)),
              gated_residual(text, norm[3], y.narrow(1, 0, words))};
    };
    Tensors m = norm1(in[0], in[1], in[2]);
    const Tensor video = guided(m[0], in.size() > 3 ? in[3] : Tensor());
    const Tensors x = added(in[0], in[1], m, attn1(cat({m[1], video}, 1), Tensor(), Tensor(), rotary_cos, rotary_sin));
    m = norm2(x[0], x[1], in[2]);
    Tensor y = ff(cat({m[1], m[0]}, 1));
    if (training && dropout > 0) y = sf::dropout(y, dropout);
    return added(x[0], x[1], m, y);
  };
  Tensors inputs{hidden_states, encoder_hidden_states, temb};
  if (guide) inputs.push_back(guide);
  return run(block, inputs);
}

// ---- the model

CogVideoXTransformer3DModel::CogVideoXTransformer3DModel(Config config)
    : CogVideoXTransformer3DModel(std::move(config),
                                  [](const Config& c, int64_t) { return std::make_shared<CogVideoXBlock>(c); }) {}

CogVideoXTransformer3DModel::CogVideoXTransformer3DModel(Config config, const MakeBlock& make_block)
    : ConfiguredModel(checked(std::move(config))),
      patch_embed(options),
      embedding_dropout(options.dropout),
      time_embedding(token_channels(options), options.time_embed_dim),
      norm_final(Shape{token_channels(options)}, options.norm_eps, options.norm_elementwise_affine),
      norm_out(options.time_embed_dim, token_channels(options), options.norm_eps, options.norm_elementwise_affine),
      proj_out(token_channels(options), options.out_channels * patch_elements(options)) {
  if (options.ofs_embed_dim) ofs_embedding.emplace(*options.ofs_embed_dim, *options.ofs_embed_dim);
  for (int64_t i = 0; i < options.num_layers; ++i) transformer_blocks.push_back(make_block(options, i));
}

Tensor CogVideoXTransformer3DModel::embedded_numbers(const Tensor& timestep, const Tensor& ofs,
                                                     const Tensor& like) const {
  const TimestepOptions o{.flip_sin_to_cos = options.flip_sin_to_cos,
                          .downscale_freq_shift = double(options.freq_shift)};
  auto embedded = [&](const TimestepEmbedding& embedding, const Tensor& numbers, int64_t channels) {
    return embedding(timestep_embedding(numbers.to(like.device()), channels, o).to(like.dtype()));
  };
  const Tensor temb =
      embedded(time_embedding, batch_of_timesteps(type(), timestep, like.size(0)), token_channels(options));
  if (!ofs_embedding) return temb;
  check_defined(type(), "ofs", ofs);
  SF_CHECK(ofs.ndim() <= 1 && (ofs.numel() == 1 || ofs.numel() == like.size(0)), type(),
           ": ofs must be one number, or one for each of the ", like.size(0), " samples, got ", ofs.shape());
  return temb + embedded(*ofs_embedding, ofs.reshape({-1}), *options.ofs_embed_dim);
}

Tensor CogVideoXTransformer3DModel::forward(const Tensor& hidden_states, const Tensor& encoder_hidden_states,
                                            const Tensor& timestep, const Tensor& ofs,
                                            const Tensor& image_rotary_emb) const {
  return predict(hidden_states, encoder_hidden_states, timestep, ofs, image_rotary_emb, {});
}

Tensor CogVideoXTransformer3DModel::predict(const Tensor& hidden_states, const Tensor& encoder_hidden_states,
                                            const Tensor& timestep, const Tensor& ofs, const Tensor& image_rotary_emb,
                                            const Tensors& guides) const {
  patch_embed.check(type(), encoder_hidden_states, hidden_states);
  SF_CHECK(guides.empty() || guides.size() == transformer_blocks.size(), type(), ": needs a guide for each of the ",
           transformer_blocks.size(), " blocks, got ", guides.size());
  const VideoGrid g = patch_embed.grid(hidden_states);
  const int64_t patches = g.frames * g.height * g.width, words = encoder_hidden_states.size(1);
  const bool turns = bool(image_rotary_emb);
  if (options.use_rotary_positional_embeddings) check_defined(type(), "image_rotary_emb", image_rotary_emb);
  if (turns)
    SF_CHECK(image_rotary_emb.ndim() == 3 && image_rotary_emb.size(0) == 2 && image_rotary_emb.size(1) == patches,
             type(), ": image_rotary_emb must be [2, ", patches, ", R], cosines and sines of the patches, got ",
             image_rotary_emb.shape());
  const Tensor temb = embedded_numbers(timestep, ofs, hidden_states);
  // The text is turned by no angle.
  auto table = [&](int64_t which, double of_text) {
    const Tensor t = image_rotary_emb.select(0, which).to(hidden_states.device());
    return cat({full({words, t.size(1)}, of_text, t.dtype(), t.device()), t}, 0);
  };
  const Tensor rotary_cos = turns ? table(0, 1) : Tensor(), rotary_sin = turns ? table(1, 0) : Tensor();

  const Tensor joint = embedding_dropout(patch_embed(encoder_hidden_states, hidden_states));
  Tensor text = joint.narrow(1, 0, words), x = joint.narrow(1, words, patches);
  size_t i = 0;
  for (auto& block : transformer_blocks) {
    Tensors both = block(x, text, temb, rotary_cos, rotary_sin, guides.empty() ? Tensor() : guides[i++]);
    x = both[0], text = both[1];
  }
  return patch_embed.video(proj_out(norm_out(norm_final(x), temb)), hidden_states);
}

SF_MODEL(CogVideoXTransformer3DModel)
    .doc(
        "diffusers' CogVideoXTransformer3DModel: noisy latents of a video [B, T, C, H, W], a text and a timestep to a "
        "prediction of the latents' size.")
    .forward<&CogVideoXTransformer3DModel::forward>(
        "hidden_states, encoder_hidden_states, timestep, ofs=None, image_rotary_emb=None");

}  // namespace sf::models
