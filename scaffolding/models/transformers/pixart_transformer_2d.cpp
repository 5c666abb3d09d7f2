#include "scaffolding/models/transformers/pixart_transformer_2d.h"

#include <algorithm>
#include <cmath>

#include "scaffolding/models/parts/config_checks.h"
#include "scaffolding/models/transformers/transformer_2d.h"
#include "scaffolding/ops/ops.h"

namespace sf::models {

io::Fields PixArtTransformer2DConfig::fields() {
  return {{"num_attention_heads", &num_attention_heads},
          {"attention_head_dim", &attention_head_dim},
          {"in_channels", &in_channels},
          {"out_channels", &out_channels},
          {"num_layers", &num_layers},
          {"dropout", &dropout},
          {"norm_num_groups", &norm_num_groups},
          {"cross_attention_dim", &cross_attention_dim},
          {"attention_bias", &attention_bias},
          {"sample_size", &sample_size},
          {"patch_size", &patch_size},
          {"activation_fn", &activation_fn},
          {"num_embeds_ada_norm", &num_embeds_ada_norm},
          {"upcast_attention", &upcast_attention},
          {"norm_type", &norm_type},
          {"norm_elementwise_affine", &norm_elementwise_affine},
          {"norm_eps", &norm_eps},
          {"interpolation_scale", &interpolation_scale},
          {"use_additional_conditions", &use_additional_conditions},
          {"caption_channels", &caption_channels},
          {"attention_type", &attention_type}};
}

namespace {

const char* const kPixArt = PixArtTransformer2DModel::kName;
constexpr int64_t kTimestepChannels = 256;
constexpr double kOutEps = 1e-6;

bool has_sizes(const PixArtTransformer2DConfig& c) {
  return c.use_additional_conditions.value_or(c.sample_size == 128);
}

PixArtTransformer2DConfig checked(PixArtTransformer2DConfig c) {
  SF_CHECK_AS(NotSupported, c.norm_type == "ada_norm_single", kPixArt, ": norm_type must be ada_norm_single, got '",
              c.norm_type, "'");
  SF_CHECK_AS(NotSupported, c.attention_type.value_or("default") == "default", kPixArt,
              ": attention_type must be default, got '", *c.attention_type, "'");
  check_patch_transformer(kPixArt, c);
  check_sizes(kPixArt, {{"sample_size", c.sample_size},
                        {"cross_attention_dim", c.cross_attention_dim.value_or(1)},
                        {"caption_channels", c.caption_channels.value_or(1)}});
  SF_CHECK(!has_sizes(c) || token_channels(c) % 3 == 0, kPixArt,
           ": num_attention_heads * attention_head_dim must be a multiple of 3 with use_additional_conditions, got ",
           token_channels(c));
  SF_CHECK(!c.caption_channels || !c.cross_attention_dim || *c.cross_attention_dim == token_channels(c), kPixArt,
           ": cross_attention_dim must be num_attention_heads * attention_head_dim with caption_channels, got ",
           c.cross_attention_dim.value_or(0), " and ", token_channels(c));
  SF_CHECK(c.interpolation_scale.value_or(1) > 0, kPixArt, ": interpolation_scale must be above 0, got ",
           *c.interpolation_scale);
  return c;
}

Tensor table(int64_t rows, int64_t channels) {
  return nn::parameter(randn({rows, channels}) / std::sqrt(double(channels)));
}

}  // namespace

PixArtSizeEmbeddings::PixArtSizeEmbeddings(int64_t embedding_dim, bool use_additional_conditions)
    : timestep_embedder(kTimestepChannels, embedding_dim) {
  if (!use_additional_conditions) return;
  resolution_embedder.emplace(kTimestepChannels, embedding_dim / 3);
  aspect_ratio_embedder.emplace(kTimestepChannels, embedding_dim / 3);
}

Tensor PixArtSizeEmbeddings::forward(const Tensor& timestep, const Tensor& resolution, const Tensor& aspect_ratio,
                                     DType dtype) const {
  auto embedded = [dtype](const TimestepEmbedding& embedder, const Tensor& numbers) {
    return embedder(
        timestep_embedding(numbers.flatten(), kTimestepChannels, {.flip_sin_to_cos = true, .downscale_freq_shift = 0})
            .to(dtype));
  };
  Tensor y = embedded(timestep_embedder, timestep);
  if (!resolution_embedder) return y;
  const int64_t batch = timestep.size(0);
  return y + cat({embedded(*resolution_embedder, resolution).reshape({batch, -1}),
                  embedded(*aspect_ratio_embedder, aspect_ratio).reshape({batch, -1})},
                 1);
}

AdaLayerNormSingle::AdaLayerNormSingle(int64_t embedding_dim, bool use_additional_conditions)
    : emb(embedding_dim, use_additional_conditions), linear(embedding_dim, 6 * embedding_dim) {}

PixArtTransformerBlock::PixArtTransformerBlock(const PixArtTransformer2DConfig& c)
    : scale_shift_table(table(6, token_channels(c))),
      norm1(token_channels(c), c.norm_eps, c.norm_elementwise_affine),
      attn1(token_channels(c), attention_options_of(c)),
      norm2(token_channels(c), c.norm_eps, c.norm_elementwise_affine),
      ff(token_channels(c), {.activation_fn = c.activation_fn, .dropout = c.dropout}) {
  if (c.cross_attention_dim) attn2.emplace(token_channels(c), attention_options_of(c, c.cross_attention_dim));
}

Tensor PixArtTransformerBlock::forward(const Tensor& hidden_states, const Tensor& modulation, const Tensor& text,
                                       const Tensor& mask, const Tensor& text_mask) const {
  auto block = [this, mask, text_mask, with_text = bool(text)](const Tensors& in) -> Tensors {
    const BlockModulation m = block_modulation(in[1], scale_shift_table);
    Tensor x =
        gated_residual(in[0], m.gate_msa,
                       attn1(layer_norm_modulate(in[0], m.scale_msa, m.shift_msa, norm1.weight, norm1.bias, norm1.eps),
                             Tensor(), mask));
    if (attn2) x = attn2->beside(x, x, with_text ? in[2] : Tensor(), text_mask);
    return {gated_residual(x, m.gate_mlp,
                           ff(layer_norm_modulate(x, m.scale_mlp, m.shift_mlp, norm2.weight, norm2.bias, norm2.eps)))};
  };
  return run(block, text ? Tensors{hidden_states, modulation, text} : Tensors{hidden_states, modulation})[0];
}

PixArtTransformer2DModel::PixArtTransformer2DModel(Config config)
    : ConfiguredModel(checked(std::move(config))),
      pos_embed(options.sample_size, options.patch_size, options.in_channels, token_channels(options),
                options.interpolation_scale.value_or(double(std::max<int64_t>(options.sample_size / 64, 1)))),
      scale_shift_table(table(2, token_channels(options))),
      proj_out(token_channels(options),
               options.patch_size * options.patch_size * options.out_channels.value_or(options.in_channels)),
      adaln_single(token_channels(options), has_sizes(options)) {
  for (int64_t i = 0; i < options.num_layers; ++i) transformer_blocks.emplace_back(options);
  if (options.caption_channels) caption_projection.emplace(*options.caption_channels, token_channels(options));
}

io::Object PixArtTransformer2DModel::flat_config(const io::Object& config) {
  return without_unused_fields(config, Config().fields());
}

Tensor PixArtTransformer2DModel::forward(const Tensor& hidden_states, const Tensor& encoder_hidden_states,
                                         const Tensor& timestep, const Tensor& resolution, const Tensor& aspect_ratio,
                                         const Tensor& attention_mask, const Tensor& encoder_attention_mask) const {
  pos_embed.check(kPixArt, hidden_states);
  const int64_t batch = hidden_states.size(0);
  Tensor text = encoder_hidden_states;
  const std::optional<int64_t> channels =
      options.caption_channels ? options.caption_channels : options.cross_attention_dim;
  SF_CHECK(!text || !channels || (text.ndim() == 3 && text.size(0) == batch && text.size(2) == *channels), kPixArt,
           ": encoder_hidden_states must be [", batch, ", M, ", *channels, "], got ", text ? text.shape() : Shape{});
  if (caption_projection) check_defined(kPixArt, "encoder_hidden_states", text);
  if (has_sizes(options)) {
    check_defined(kPixArt, "resolution", resolution);
    check_shape(kPixArt, "resolution", resolution, {batch, 2});
    check_defined(kPixArt, "aspect_ratio", aspect_ratio);
    check_shape(kPixArt, "aspect_ratio", aspect_ratio, {batch, 1});
  }
  const Tensor mask = attention_bias(kPixArt, "attention_mask", attention_mask, hidden_states.dtype());
  const Tensor text_mask =
      attention_bias(kPixArt, "encoder_attention_mask", encoder_attention_mask, hidden_states.dtype());

  Tensor x = pos_embed(hidden_states);
  Tensor embedded = adaln_single.emb.forward(batch_of_timesteps(kPixArt, timestep, batch).to(x.device()), resolution,
                                             aspect_ratio, x.dtype());
  Tensor modulation = adaln_single.linear(silu(embedded));
  if (caption_projection) text = (*caption_projection)(text);
  for (auto& block : transformer_blocks) x = block(x, modulation, text, mask, text_mask);

  Tensors m = rows_with_table(scale_shift_table, embedded.unsqueeze(1));
  x = proj_out(layer_norm_modulate(x, m[1], m[0], {}, {}, kOutEps));
  return pos_embed.picture(x, hidden_states);
}

SF_MODEL(PixArtTransformer2DModel)
    .doc(
        "diffusers' PixArtTransformer2DModel: noisy latents [B, C, H, W], a text and a timestep to a prediction of the "
        "latents' size.")
    .forward<&PixArtTransformer2DModel::forward>(
        "hidden_states, encoder_hidden_states=None, timestep=None, resolution=None, aspect_ratio=None, "
        "attention_mask=None, encoder_attention_mask=None");

}  // namespace sf::models
