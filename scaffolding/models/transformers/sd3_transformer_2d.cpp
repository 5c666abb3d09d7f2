#include "scaffolding/models/transformers/sd3_transformer_2d.h"

#include <algorithm>
#include <set>

#include "scaffolding/models/parts/config_checks.h"
#include "scaffolding/ops/ops.h"

namespace sf::models {

io::Fields SD3Transformer2DConfig::fields() {
  return {{"sample_size", &sample_size},
          {"patch_size", &patch_size},
          {"in_channels", &in_channels},
          {"num_layers", &num_layers},
          {"attention_head_dim", &attention_head_dim},
          {"num_attention_heads", &num_attention_heads},
          {"joint_attention_dim", &joint_attention_dim},
          {"caption_projection_dim", &caption_projection_dim},
          {"pooled_projection_dim", &pooled_projection_dim},
          {"out_channels", &out_channels},
          {"pos_embed_max_size", &pos_embed_max_size},
          {"dual_attention_layers", &dual_attention_layers},
          {"qk_norm", &qk_norm}};
}

namespace {

const char* const kSD3 = SD3Transformer2DModel::kName;
constexpr double kSD3Eps = 1e-6;
constexpr int64_t kMostSD3Patches = 4096;  // of pos_embed_max_size: a table of positions must not fill the memory

SD3Transformer2DConfig checked(SD3Transformer2DConfig c) {
  check_patch_transformer(kSD3, c);
  check_sizes(kSD3, {{"sample_size", c.sample_size},
                     {"joint_attention_dim", c.joint_attention_dim},
                     {"pooled_projection_dim", c.pooled_projection_dim}});
  SF_CHECK(c.caption_projection_dim == token_channels(c), kSD3,
           ": caption_projection_dim must be num_attention_heads * attention_head_dim, ", token_channels(c), ", got ",
           c.caption_projection_dim);
  SF_CHECK(c.pos_embed_max_size >= 1 && c.pos_embed_max_size <= kMostSD3Patches, kSD3,
           ": pos_embed_max_size must be from 1 to ", kMostSD3Patches, ", got ", c.pos_embed_max_size);
  for (int64_t i : c.dual_attention_layers)
    SF_CHECK(i >= 0, kSD3, ": dual_attention_layers must be numbers of blocks, got ", i);
  SF_CHECK_AS(NotSupported, !c.qk_norm || *c.qk_norm == "rms_norm", kSD3, ": qk_norm must be absent or rms_norm, got '",
              c.qk_norm.value_or(""), "'");
  return c;
}

bool has_dual_attention(const SD3Transformer2DConfig& c, int64_t i) {
  return std::count(c.dual_attention_layers.begin(), c.dual_attention_layers.end(), i) > 0;
}
bool is_last_block(const SD3Transformer2DConfig& c, int64_t i) { return i == c.num_layers - 1; }

JointAttentionOptions sd3_attention(const SD3Transformer2DConfig& c, bool has_text, bool context_pre_only) {
  return {.heads = c.num_attention_heads,
          .dim_head = c.attention_head_dim,
          .qk_rms_norm_eps = c.qk_norm ? std::optional(kSD3Eps) : std::nullopt,
          .has_text = has_text,
          .context_pre_only = context_pre_only};
}

FeedForwardOptions sd3_feed_forward() { return {.activation_fn = "gelu-approximate"}; }

Tensor normed(const Tensor& x, const Tensor& scale, const Tensor& shift) {
  return layer_norm_modulate(x, scale, shift, {}, {}, kSD3Eps);
}

}  // namespace

SD3Modulation::SD3Modulation(int64_t channels, int64_t n) : parts(n), linear(channels, n * channels) {}

Tensors SD3Modulation::forward(const Tensor& temb) const { return chunk(linear(silu(temb)), parts, 1); }

JointTransformerBlock::JointTransformerBlock(const SD3Transformer2DConfig& c, int64_t i)
    : norm1(token_channels(c), has_dual_attention(c, i) ? 9 : 6),
      norm1_context(token_channels(c), is_last_block(c, i) ? 2 : 6),
      attn(token_channels(c), sd3_attention(c, true, is_last_block(c, i))),
      ff(token_channels(c), sd3_feed_forward()) {
  if (has_dual_attention(c, i)) attn2.emplace(token_channels(c), sd3_attention(c, false, false));
  if (!is_last_block(c, i)) ff_context.emplace(token_channels(c), sd3_feed_forward());
}

Tensors JointTransformerBlock::forward(const Tensor& hidden_states, const Tensor& encoder_hidden_states,
                                       const Tensor& temb) const {
  auto block = [this](const Tensors& in) -> Tensors {
    const Tensors m = norm1(in[2]), t = norm1_context(in[2]);
    const bool makes_text = ff_context.has_value();
    Tensors y = attn(normed(in[0], m[1], m[0]), makes_text ? normed(in[1], t[1], t[0]) : normed(in[1], t[0], t[1]));
    Tensor x = gated_residual(in[0], m[2], y[0]);
    // beside the first attention: of what came in
    if (attn2) x = gated_residual(x, m[8], (*attn2)(normed(in[0], m[7], m[6]))[0]);
    x = gated_residual(x, m[5], ff(normed(x, m[4], m[3])));
    if (!makes_text) return {x};
    const Tensor text = gated_residual(in[1], t[2], y[1]);
    return {x, gated_residual(text, t[5], (*ff_context)(normed(text, t[4], t[3])))};
  };
  return run(block, {hidden_states, encoder_hidden_states, temb});
}

SD3Transformer2DModel::SD3Transformer2DModel(Config config)
    : ConfiguredModel(checked(std::move(config))),
      pos_embed(options.sample_size, options.patch_size, options.in_channels, token_channels(options), 1,
                options.pos_embed_max_size),
      time_text_embed(token_channels(options), options.pooled_projection_dim),
      context_embedder(options.joint_attention_dim, options.caption_projection_dim),
      norm_out(token_channels(options), token_channels(options), kSD3Eps),
      proj_out(token_channels(options),
               options.patch_size * options.patch_size * options.out_channels.value_or(options.in_channels)) {
  for (int64_t i = 0; i < options.num_layers; ++i) transformer_blocks.emplace_back(options, i);
}

Tensor SD3Transformer2DModel::forward(const Tensor& hidden_states, const Tensor& encoder_hidden_states,
                                      const Tensor& pooled_projections, const Tensor& timestep,
                                      const Tensors& block_controlnet_hidden_states, const Tensor& skip_layers) const {
  pos_embed.check(kSD3, hidden_states);
  const int64_t batch = hidden_states.size(0), blocks = int64_t(transformer_blocks.size());
  check_defined(kSD3, "encoder_hidden_states", encoder_hidden_states);
  SF_CHECK(encoder_hidden_states.ndim() == 3 && encoder_hidden_states.size(0) == batch &&
               encoder_hidden_states.size(2) == options.joint_attention_dim,
           kSD3, ": encoder_hidden_states must be [", batch, ", M, ", options.joint_attention_dim, "], got ",
           encoder_hidden_states.shape());
  check_defined(kSD3, "pooled_projections", pooled_projections);
  check_shape(kSD3, "pooled_projections", pooled_projections, {batch, options.pooled_projection_dim});
  std::set<int64_t> skipped;
  if (skip_layers)
    for (double i : skip_layers.to_vector()) skipped.insert(int64_t(i));
  const Tensors& control = block_controlnet_hidden_states;
  SF_CHECK(int64_t(control.size()) <= blocks, kSD3, ": block_controlnet_hidden_states must be at most ", blocks,
           ", one for each block, got ", control.size());

  Tensor x = pos_embed(hidden_states);
  const Tensor temb = time_text_embed(batch_of_timesteps(kSD3, timestep, batch).to(x.device()), pooled_projections);
  Tensor text = project_text(context_embedder, encoder_hidden_states);
  for (int64_t i = 0; i < blocks; ++i) {
    if (!skipped.contains(i)) {
      Tensors both = transformer_blocks[size_t(i)](x, text, temb);
      x = both[0];
      if (both.size() > 1) text = both[1];
    }
    if (control.empty() || i == blocks - 1) continue;
    const double each = double(blocks) / double(control.size());
    x = x + control[std::min(size_t(double(i) / each), control.size() - 1)];
  }
  return pos_embed.picture(proj_out(norm_out(x, temb)), hidden_states);
}

SF_MODEL(SD3Transformer2DModel)
    .doc(
        "diffusers' SD3Transformer2DModel: noisy latents [B, C, H, W], a text as tokens and as one vector, and a "
        "timestep to a prediction of the latents' size.")
    .forward<&SD3Transformer2DModel::forward>(
        "hidden_states, encoder_hidden_states=None, pooled_projections=None, timestep=None, "
        "block_controlnet_hidden_states=[], skip_layers=None");

}  // namespace sf::models
