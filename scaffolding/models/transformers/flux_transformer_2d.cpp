#include "scaffolding/models/transformers/flux_transformer_2d.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "scaffolding/autograd/mode.h"
#include "scaffolding/io/checkpoint.h"
#include "scaffolding/io/config.h"
#include "scaffolding/models/parts/config_checks.h"
#include "scaffolding/ops/ops.h"

namespace sf::models {

io::Fields FluxTransformer2DConfig::fields() {
  return {{"patch_size", &patch_size},
          {"in_channels", &in_channels},
          {"out_channels", &out_channels},
          {"num_layers", &num_layers},
          {"num_single_layers", &num_single_layers},
          {"attention_head_dim", &attention_head_dim},
          {"num_attention_heads", &num_attention_heads},
          {"joint_attention_dim", &joint_attention_dim},
          {"pooled_projection_dim", &pooled_projection_dim},
          {"guidance_embeds", &guidance_embeds},
          {"axes_dims_rope", &axes_dims_rope}};
}

namespace {

const char* const kFlux = FluxTransformer2DModel::kName;
constexpr double kFluxEps = 1e-6, kFluxTheta = 10000;
constexpr int64_t kFluxMlpRatio = 4;
constexpr double kTimestepScale = 1000;  // the network's timesteps are from 0 to 1, its embedding's from 0 to this
constexpr double kMostHalf = 65504;      // the largest float16

FluxTransformer2DConfig checked(FluxTransformer2DConfig c) {
  check_sizes(kFlux, {{"num_attention_heads", c.num_attention_heads},
                      {"attention_head_dim", c.attention_head_dim},
                      {"in_channels", c.in_channels},
                      {"out_channels", c.out_channels.value_or(1)},
                      {"patch_size", c.patch_size},
                      {"joint_attention_dim", c.joint_attention_dim},
                      {"pooled_projection_dim", c.pooled_projection_dim}});
  check_num_layers(kFlux, c.num_layers);
  check_num_layers(kFlux, c.num_single_layers);
  int64_t turned = 0;
  for (const int64_t channels : c.axes_dims_rope) {
    SF_CHECK(channels > 0 && channels % 2 == 0 && channels <= c.attention_head_dim, kFlux,
             ": axes_dims_rope must have even numbers from 2 to attention_head_dim, got ", channels);
    turned += channels;
  }
  SF_CHECK(turned == c.attention_head_dim, kFlux, ": axes_dims_rope must add up to attention_head_dim ",
           c.attention_head_dim, ", got ", turned);
  return c;
}

JointAttentionOptions attention_of(const FluxTransformer2DConfig& c, bool has_text) {
  return {.heads = c.num_attention_heads,
          .dim_head = c.attention_head_dim,
          .qk_rms_norm_eps = kFluxEps,
          .has_text = has_text,
          .pre_only = !has_text};
}

// Sums in float16 may be too large for it, which the largest numbers stand for.
Tensor within_half(const Tensor& x) { return x.dtype() == kFloat16 ? clamp(x, -kMostHalf, kMostHalf) : x; }

// Behind block i of `blocks`, the sample that is added; absent where there are none.
Tensor control_of(const Tensors& samples, size_t i, size_t blocks, bool repeat) {
  if (samples.empty()) return {};
  const size_t each = (blocks + samples.size() - 1) / samples.size();
  return samples[repeat ? i % samples.size() : i / each];
}

}  // namespace

FluxTransformerBlock::FluxTransformerBlock(const FluxTransformer2DConfig& c)
    : norm1(token_channels(c), 6),
      norm1_context(token_channels(c), 6),
      attn(token_channels(c), attention_of(c, true)),
      norm2(Shape{token_channels(c)}, kFluxEps, false),
      ff(token_channels(c), {.activation_fn = "gelu-approximate"}),
      norm2_context(Shape{token_channels(c)}, kFluxEps, false),
      ff_context(token_channels(c), {.activation_fn = "gelu-approximate"}) {}

Tensors FluxTransformerBlock::forward(const Tensor& hidden_states, const Tensor& encoder_hidden_states,
                                      const Tensor& temb, const Tensor& rotary_cos, const Tensor& rotary_sin) const {
  auto block = [this, rotary_cos, rotary_sin](const Tensors& in) -> Tensors {
    const Tensors picture = norm1(in[0], in[2]), text = norm1_context(in[1], in[2]);
    const Tensors y = attn(picture[0], text[0], rotary_cos, rotary_sin);
    // m: the norm's result, gate, then shift, scale and gate of the feed-forward layer
    auto finished = [](const Tensor& x, const Tensor& attended, const Tensors& m, const nn::LayerNorm& norm,
                       const FeedForward& feed_forward) {
      const Tensor sum = gated_residual(x, m[1], attended);
      return gated_residual(sum, m[4], feed_forward(modulated(norm, sum, m[3], m[2])));
    };
    return {finished(in[0], y[0], picture, norm2, ff),
            within_half(finished(in[1], y[1], text, norm2_context, ff_context))};
  };
  return run(block, {hidden_states, encoder_hidden_states, temb});
}

FluxSingleTransformerBlock::FluxSingleTransformerBlock(const FluxTransformer2DConfig& c)
    : norm(token_channels(c), 3),
      proj_mlp(token_channels(c), kFluxMlpRatio * token_channels(c)),
      proj_out((1 + kFluxMlpRatio) * token_channels(c), token_channels(c)),
      attn(token_channels(c), attention_of(c, false)) {}

Tensor FluxSingleTransformerBlock::forward(const Tensor& hidden_states, const Tensor& temb, const Tensor& rotary_cos,
                                           const Tensor& rotary_sin) const {
  auto block = [this, rotary_cos, rotary_sin](const Tensors& in) -> Tensors {
    const Tensors m = norm(in[0], in[1]);
    const Tensor y =
        cat({attn(m[0], Tensor(), rotary_cos, rotary_sin)[0], project(proj_mlp, m[0], {.activation = "gelu_tanh"})}, 2);
    return {within_half(gated_residual(in[0], m[1], proj_out(y)))};
  };
  return run(block, {hidden_states, temb})[0];
}

FluxTransformer2DModel::FluxTransformer2DModel(Config config)
    : ConfiguredModel(checked(std::move(config))),
      time_text_embed(token_channels(options), options.pooled_projection_dim, options.guidance_embeds),
      context_embedder(options.joint_attention_dim, token_channels(options)),
      x_embedder(options.in_channels, token_channels(options)),
      norm_out(token_channels(options), token_channels(options), kFluxEps),
      proj_out(token_channels(options),
               options.patch_size * options.patch_size * options.out_channels.value_or(options.in_channels)) {
  for (int64_t i = 0; i < options.num_layers; ++i) transformer_blocks.emplace_back(options);
  for (int64_t i = 0; i < options.num_single_layers; ++i) single_transformer_blocks.emplace_back(options);
}

io::Object FluxTransformer2DModel::config_of_weights(const std::vector<io::CheckpointEntry>& tensors) {
  Config c;
  c.num_layers = c.num_single_layers = 0;
  // The number in "double_blocks.7.img_mod" behind `list`, one more than the last of which is how many there are.
  auto count = [](const std::string& name, std::string_view list, int64_t& layers) {
    const size_t at = name.find(list);
    if (at == name.npos || (at > 0 && name[at - 1] != '.')) return;
    int64_t i = -1;
    std::from_chars(name.data() + at + list.size(), name.data() + name.size(), i);
    if (i >= 0 && i < kMostLayers) layers = std::max(layers, i + 1);
  };
  auto ends = [](const std::string& name, std::string_view with) {
    return name.ends_with(with) && (name.size() == with.size() || name[name.size() - with.size() - 1] == '.');
  };
  for (auto& [name, dtype, shape] : tensors) {
    count(name, "double_blocks.", c.num_layers);
    count(name, "transformer_blocks.", c.num_layers);
    count(name, "single_blocks.", c.num_single_layers);
    count(name, "single_transformer_blocks.", c.num_single_layers);
    c.guidance_embeds =
        c.guidance_embeds || name.find("guidance_in.") != name.npos || name.find("guidance_embedder.") != name.npos;
    for (const char* query : {"norm.query_norm.scale", "attn.norm_q.weight"})
      if (ends(name, query) && shape.size() == 1) c.attention_head_dim = shape[0];
    if (shape.size() != 2) continue;
    for (const char* in : {"img_in.weight", "x_embedder.weight"})
      if (ends(name, in)) c.in_channels = shape[1], c.num_attention_heads = shape[0];
    for (const char* in : {"txt_in.weight", "context_embedder.weight"})
      if (ends(name, in)) c.joint_attention_dim = shape[1];
    for (const char* in : {"vector_in.in_layer.weight", "text_embedder.linear_1.weight"})
      if (ends(name, in)) c.pooled_projection_dim = shape[1];
    if (ends(name, "final_layer.linear.weight")) c.out_channels = shape[0];
    if (ends(name, "proj_out.weight") && name.find("single_transformer_blocks.") == name.npos)
      c.out_channels = shape[0];
  }
  SF_CHECK(c.num_layers > 0 && c.num_single_layers > 0, kFlux,
           ": the file has no tensors such as 'double_blocks.0.img_mod.lin.weight' and "
           "'single_blocks.0.modulation.lin.weight'");
  c.num_attention_heads /= std::max<int64_t>(c.attention_head_dim, 1);
  if (c.out_channels == c.in_channels) c.out_channels.reset();
  return io::write_fields(c.fields());
}

Tensors FluxTransformer2DModel::rotary(const Tensor& ids) const {
  autograd::NoGrad off;
  const auto& axes = options.axes_dims_rope;
  // float64, as diffusers has them: [attention_head_dim], either of a pair the same
  const Tensor frequencies = frequencies_.of({options.attention_head_dim}, ids, kFloat64, [&] {
    std::vector<double> values;
    for (const int64_t channels : axes)
      for (int64_t i = 0; i < channels; ++i)
        values.push_back(std::pow(kFluxTheta, -double(i / 2 * 2) / double(channels)));
    return tensor(values, {int64_t(values.size())}, kFloat64);
  });
  Tensors angles;
  int64_t at = 0;
  for (size_t axis = 0; axis < axes.size(); at += axes[axis++])
    angles.push_back(ids.to(kFloat32).select(1, int64_t(axis)).to(kFloat64).unsqueeze(1) *
                     frequencies.narrow(0, at, axes[axis]));
  const Tensor all = cat(angles, 1);
  return {cos(all).to(kFloat32), sin(all).to(kFloat32)};
}

Tensor FluxTransformer2DModel::forward(const Tensor& hidden_states, const Tensor& encoder_hidden_states,
                                       const Tensor& pooled_projections, const Tensor& timestep, const Tensor& img_ids,
                                       const Tensor& txt_ids, const Tensor& guidance,
                                       const Tensors& controlnet_block_samples,
                                       const Tensors& controlnet_single_block_samples,
                                       bool controlnet_blocks_repeat) const {
  check_defined(kFlux, "hidden_states", hidden_states);
  SF_CHECK(hidden_states.ndim() == 3 && hidden_states.size(2) == options.in_channels, kFlux,
           ": hidden_states must be [B, N, ", options.in_channels, "], got ", hidden_states.shape());
  const int64_t batch = hidden_states.size(0), patches = hidden_states.size(1);
  check_defined(kFlux, "encoder_hidden_states", encoder_hidden_states);
  SF_CHECK(encoder_hidden_states.ndim() == 3 && encoder_hidden_states.size(0) == batch &&
               encoder_hidden_states.size(2) == options.joint_attention_dim,
           kFlux, ": encoder_hidden_states must be [", batch, ", M, ", options.joint_attention_dim, "], got ",
           encoder_hidden_states.shape());
  check_defined(kFlux, "pooled_projections", pooled_projections);
  check_shape(kFlux, "pooled_projections", pooled_projections, {batch, options.pooled_projection_dim});
  const int64_t words = encoder_hidden_states.size(1), axes = int64_t(options.axes_dims_rope.size());
  // a batch's places are all alike; diffusers takes them so, too
  auto places = [&](const char* name, const Tensor& ids, int64_t tokens) {
    check_defined(kFlux, name, ids);
    const Tensor one = ids.ndim() == 3 && ids.size(0) > 0 ? ids.select(0, 0) : ids;
    SF_CHECK(one.shape() == Shape({tokens, axes}), kFlux, ": ", name, " must be [", tokens, ", ", axes, "], got ",
             ids.shape());
    return one.to(hidden_states.device()).to(kFloat32);
  };
  const Tensors turned = rotary(cat({places("txt_ids", txt_ids, words), places("img_ids", img_ids, patches)}, 0));
  SF_CHECK(bool(guidance) == options.guidance_embeds, kFlux,
           guidance ? ": has no embedding of guidance (guidance_embeds is false), leave it out"
                    : ": needs guidance, since guidance_embeds is true");
  for (const Tensors* samples : {&controlnet_block_samples, &controlnet_single_block_samples})
    for (const Tensor& sample : *samples)
      check_shape(kFlux, "a ControlNet's sample", sample, {batch, patches, token_channels(options)});

  const DType dtype = hidden_states.dtype();
  auto scaled = [&](const Tensor& number) {
    return batch_of_timesteps(kFlux, number, batch).to(hidden_states.device()).to(dtype) * kTimestepScale;
  };
  const Tensor temb = time_text_embed(scaled(timestep), pooled_projections, guidance ? scaled(guidance) : Tensor());
  Tensor x = x_embedder(hidden_states), text = project_text(context_embedder, encoder_hidden_states);
  for (size_t i = 0; i < transformer_blocks.size(); ++i) {
    const Tensors both = transformer_blocks[i](x, text, temb, turned[0], turned[1]);
    x = both[0], text = both[1];
    const Tensor control = control_of(controlnet_block_samples, i, transformer_blocks.size(), controlnet_blocks_repeat);
    if (control) x = x + control;
  }
  Tensor all = cat({text, x}, 1);
  for (size_t i = 0; i < single_transformer_blocks.size(); ++i) {
    all = single_transformer_blocks[i](all, temb, turned[0], turned[1]);
    const Tensor control = control_of(controlnet_single_block_samples, i, single_transformer_blocks.size(), false);
    if (control) all = cat({all.narrow(1, 0, words), all.narrow(1, words, patches) + control}, 1);
  }
  return proj_out(norm_out(all.narrow(1, words, patches), temb));
}

SF_MODEL(FluxTransformer2DModel)
    .doc(
        "diffusers' FluxTransformer2DModel: patches of noisy latents [B, N, C], a text, a vector of it and a timestep "
        "to a prediction of the patches' size.")
    .forward<&FluxTransformer2DModel::forward>(
        "hidden_states, encoder_hidden_states, pooled_projections, timestep, img_ids, txt_ids, guidance=None, "
        "controlnet_block_samples=[], controlnet_single_block_samples=[], controlnet_blocks_repeat=False");

}  // namespace sf::models
