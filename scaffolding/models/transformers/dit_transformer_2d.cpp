#include "scaffolding/models/transformers/dit_transformer_2d.h"

#include "scaffolding/models/parts/config_checks.h"
#include "scaffolding/models/transformers/transformer_2d.h"
#include "scaffolding/nn/streaming/residence.h"
#include "scaffolding/ops/ops.h"

namespace sf::models {

io::Fields DiTTransformer2DConfig::fields() {
  return {{"num_attention_heads", &num_attention_heads},
          {"attention_head_dim", &attention_head_dim},
          {"in_channels", &in_channels},
          {"out_channels", &out_channels},
          {"num_layers", &num_layers},
          {"dropout", &dropout},
          {"norm_num_groups", &norm_num_groups},
          {"attention_bias", &attention_bias},
          {"sample_size", &sample_size},
          {"patch_size", &patch_size},
          {"activation_fn", &activation_fn},
          {"num_embeds_ada_norm", &num_embeds_ada_norm},
          {"upcast_attention", &upcast_attention},
          {"norm_type", &norm_type},
          {"norm_elementwise_affine", &norm_elementwise_affine},
          {"norm_eps", &norm_eps}};
}

namespace {

constexpr double kModulatedEps = 1e-6;  // of norms without a setting

DiTTransformer2DConfig checked(DiTTransformer2DConfig c) {
  const char* who = DiTTransformer2DModel::kName;
  SF_CHECK_AS(NotSupported, c.norm_type == "ada_norm_zero", who, ": norm_type must be ada_norm_zero, got '",
              c.norm_type, "'");
  SF_CHECK(c.num_embeds_ada_norm.value_or(0) > 0, who,
           ": num_embeds_ada_norm, the number of classes, must be above 0, got ", c.num_embeds_ada_norm.value_or(0));
  check_sizes(who, {{"num_embeds_ada_norm", *c.num_embeds_ada_norm}});
  check_patch_transformer(who, c);
  return c;
}

}  // namespace

DiTTransformerBlock::DiTTransformerBlock(const DiTTransformer2DConfig& c)
    : norm1(token_channels(c), *c.num_embeds_ada_norm),
      attn1(token_channels(c), attention_options_of(c)),
      norm3(token_channels(c), c.norm_eps, c.norm_elementwise_affine),
      ff(token_channels(c), {.activation_fn = c.activation_fn, .dropout = c.dropout}) {}

Tensor DiTTransformerBlock::forward(const Tensor& hidden_states, const Tensor& timestep,
                                    const Tensor& class_labels) const {
  auto block = [=, this](const Tensors& in) -> Tensors {
    const BlockModulation m = norm1.forward(timestep, class_labels, in[0].dtype());
    Tensor x = gated_residual(in[0], m.gate_msa,
                              attn1(layer_norm_modulate(in[0], m.scale_msa, m.shift_msa, {}, {}, kModulatedEps)));
    return {gated_residual(x, m.gate_mlp,
                           ff(layer_norm_modulate(x, m.scale_mlp, m.shift_mlp, norm3.weight, norm3.bias, norm3.eps)))};
  };
  return run(block, {hidden_states})[0];
}

DiTTransformer2DModel::DiTTransformer2DModel(Config config)
    : ConfiguredModel(checked(std::move(config))),
      pos_embed(options.sample_size, options.patch_size, options.in_channels, token_channels(options)),
      proj_out_1(token_channels(options), 2 * token_channels(options)),
      proj_out_2(token_channels(options),
                 options.patch_size * options.patch_size * options.out_channels.value_or(options.in_channels)) {
  for (int64_t i = 0; i < options.num_layers; ++i) transformer_blocks.emplace_back(options);
}

io::Object DiTTransformer2DModel::flat_config(const io::Object& config) {
  return without_unused_fields(config, Config().fields());
}

Tensor DiTTransformer2DModel::forward(const Tensor& hidden_states, const Tensor& timestep,
                                      const Tensor& class_labels) const {
  pos_embed.check(kName, hidden_states);
  const int64_t batch = hidden_states.size(0);
  Tensor t = batch_of_timesteps(kName, timestep, batch).to(hidden_states.device());
  check_defined(kName, "class_labels", class_labels);
  check_shape(kName, "class_labels", class_labels, {batch});

  Tensor x = pos_embed(hidden_states);
  for (auto& block : transformer_blocks) x = block(x, t, class_labels);
  const nn::WeightsHere here(transformer_blocks[0]);
  Tensors m = chunk(proj_out_1(silu(transformer_blocks[0].norm1.emb.forward(t, class_labels, x.dtype()))), 2, 1);
  x = proj_out_2(layer_norm_modulate(x, m[1], m[0], {}, {}, kModulatedEps));
  return pos_embed.picture(x, hidden_states);
}

SF_MODEL(DiTTransformer2DModel)
    .doc(
        "diffusers' DiTTransformer2DModel: noisy latents [B, C, H, W], a timestep and class labels [B] to a prediction "
        "of the latents' size.")
    .forward<&DiTTransformer2DModel::forward>("hidden_states, timestep, class_labels");

}  // namespace sf::models
