#include "scaffolding/models/transformers/dit_model.h"

#include <numeric>

#include "scaffolding/models/parts/config_checks.h"
#include "scaffolding/ops/ops.h"

namespace sf::models {

io::Fields DiTConfig::fields() {
  return {{"patch_size", &patch_size},   {"in_channels", &in_channels},
          {"hidden_size", &hidden_size}, {"depth", &depth},
          {"num_heads", &num_heads},     {"mlp_ratio", &mlp_ratio},
          {"context_dim", &context_dim}, {"out_channels", &out_channels}};
}

namespace {

constexpr int64_t kTimestepChannels = 256;
constexpr double kEps = 1e-6;

DiTConfig checked(DiTConfig c) {
  check_sizes(DiTModel::kName, {{"patch_size", c.patch_size},
                                {"in_channels", c.in_channels},
                                {"hidden_size", c.hidden_size},
                                {"depth", c.depth},
                                {"num_heads", c.num_heads},
                                {"context_dim", c.context_dim},
                                {"out_channels", c.out_channels.value_or(1)}});
  SF_CHECK(c.depth <= kMostLayers, DiTModel::kName, ": depth must be at most ", kMostLayers, ", got ", c.depth);
  SF_CHECK(c.hidden_size % c.num_heads == 0, DiTModel::kName, ": num_heads must divide hidden_size, got ", c.num_heads,
           " and ", c.hidden_size);
  SF_CHECK(c.hidden_size % 2 == 0, DiTModel::kName, ": hidden_size must be even, got ", c.hidden_size);
  SF_CHECK(c.mlp_ratio > 0 && c.mlp_ratio < 1000, DiTModel::kName, ": mlp_ratio must be above 0, got ", c.mlp_ratio);
  return c;
}

AttentionOptions attention_options(const DiTConfig& c) {
  return {.heads = c.num_heads, .dim_head = c.hidden_size / c.num_heads, .bias = true};
}

// Sines and cosines of each patch's frame, row and column [1, f * h * w, channels]: 3/8 of the channels tell the row,
// as many the column, the rest the frame.
Tensor positions(int64_t f, int64_t h, int64_t w, int64_t channels) {
  const int64_t side = channels * 3 / 16 * 2, time = channels - 2 * side;
  auto table = [](int64_t n, int64_t dim) {
    std::vector<double> places(static_cast<size_t>(n));
    std::iota(places.begin(), places.end(), 0.0);
    return sincos_positions(places, dim);
  };
  Tensor frames = table(f, time).reshape({f, 1, 1, time}).expand({f, h, w, time});
  Tensor rows = table(h, side).reshape({1, h, 1, side}).expand({f, h, w, side});
  Tensor columns = table(w, side).reshape({1, 1, w, side}).expand({f, h, w, side});
  return cat({frames, rows, columns}, -1).reshape({1, f * h * w, channels});
}

}  // namespace

DiTBlock::DiTBlock(const DiTConfig& c)
    : adaLN_modulation(c.hidden_size, 6 * c.hidden_size),
      attn1(c.hidden_size, attention_options(c)),
      attn2(c.hidden_size, attention_options(c)),
      ff(c.hidden_size,
         {.activation_fn = "gelu-approximate", .inner_dim = int64_t(double(c.hidden_size) * c.mlp_ratio)}) {}

Tensor DiTBlock::forward(const Tensor& hidden_states, const Tensor& conditioning, const Tensor& text,
                         const Tensor& mask) const {
  auto block = [this, mask, with_text = bool(text)](const Tensors& in) -> Tensors {
    const BlockModulation m = block_modulation(adaLN_modulation(silu(in[1])));
    Tensor x =
        gated_residual(in[0], m.gate_msa, attn1(layer_norm_modulate(in[0], m.scale_msa, m.shift_msa, {}, {}, kEps)));
    if (with_text) x = attn2.beside(x, layer_norm(x, {x.size(-1)}, {}, {}, kEps), in[2], mask);
    return {gated_residual(x, m.gate_mlp, ff(layer_norm_modulate(x, m.scale_mlp, m.shift_mlp, {}, {}, kEps)))};
  };
  return run(block, text ? Tensors{hidden_states, conditioning, text} : Tensors{hidden_states, conditioning})[0];
}

DiTTextProjection::DiTTextProjection(int64_t context_dim, int64_t hidden_size)
    : linear_1(context_dim, hidden_size), linear_2(hidden_size, hidden_size) {}

Tensor DiTTextProjection::forward(const Tensor& text) const {
  return project_text({&linear_1, &linear_2}, text,
                      [this](const Tensor& t) { return two_layers(linear_1, "gelu_tanh", nullptr, linear_2, t); });
}

DiTModel::DiTModel(Config config)
    : ConfiguredModel(checked(std::move(config))),
      x_embedder(options.in_channels, options.hidden_size, nn::Ints(options.patch_size),
                 {.stride = nn::Ints(options.patch_size)}),
      t_embedder(kTimestepChannels, options.hidden_size),
      text_embedder(options.context_dim, options.hidden_size),
      final_modulation(options.hidden_size, 2 * options.hidden_size),
      final_linear(options.hidden_size,
                   options.patch_size * options.patch_size * options.out_channels.value_or(options.in_channels)) {
  for (int64_t i = 0; i < options.depth; ++i) blocks.emplace_back(options);
}

Tensor DiTModel::forward(const Tensor& hidden_states, const Tensor& timestep, const Tensor& encoder_hidden_states,
                         const Tensor& mask) const {
  check_defined(kName, "hidden_states", hidden_states);
  const Shape& shape = hidden_states.shape();
  const int64_t patch = options.patch_size, channels = options.in_channels;
  SF_CHECK((shape.size() == 4 || shape.size() == 5) && shape[1] == channels, kName, ": hidden_states must be [B, ",
           channels, ", H, W] or [B, ", channels, ", F, H, W], got ", shape);
  const int64_t batch = shape[0], frames = shape.size() == 5 ? shape[2] : 1, h = hidden_states.size(-2),
                w = hidden_states.size(-1);
  SF_CHECK(h % patch == 0 && w % patch == 0, kName, ": patch_size ", patch, " must divide height and width, got ",
           shape);
  const Tensor& text = encoder_hidden_states;
  SF_CHECK(!text || (text.ndim() == 3 && text.size(0) == batch && text.size(2) == options.context_dim), kName,
           ": encoder_hidden_states must be [", batch, ", M, context_dim=", options.context_dim, "], got ",
           text ? text.shape() : Shape{});
  SF_CHECK(!mask || text, kName, ": encoder_attention_mask goes with encoder_hidden_states");
  if (mask) check_shape(kName, "encoder_attention_mask", mask, {batch, text.size(1)});
  Tensor t = timestep_embedding(batch_of_timesteps(kName, timestep, batch), kTimestepChannels,
                                {.flip_sin_to_cos = true, .downscale_freq_shift = 0});

  // Frames beside each other in the batch for the patches, and one after the other as tokens.
  Tensor pictures =
      shape.size() == 5 ? hidden_states.transpose(1, 2).reshape({batch * frames, channels, h, w}) : hidden_states;
  Tensor x = x_embedder(pictures).flatten(2).transpose(1, 2).reshape(
      {batch, frames * (h / patch) * (w / patch), options.hidden_size});
  const int64_t rows = h / patch, columns = w / patch;
  x = x + positions_.of({frames, rows, columns}, x, x.dtype(),
                        [&] { return positions(frames, rows, columns, options.hidden_size); });
  Tensor conditioning = t_embedder(t.to(x.dtype()));
  Tensor words = text ? text_embedder(text.to(x.dtype())) : text,
         seen = mask ? ne(mask, wrapped(0)).unsqueeze(1).unsqueeze(1) : mask;
  for (auto& block : blocks) x = block(x, conditioning, words, seen);

  Tensors m = chunk(final_modulation(silu(conditioning)), 2, 1);
  Tensor y =
      unpatchified(final_linear(layer_norm_modulate(x, m[1], m[0], {}, {}, kEps)), frames, h / patch, w / patch, patch);
  return shape.size() == 5 ? y : y.select(2, 0);
}

SF_MODEL(DiTModel)
    .doc(
        "A diffusion transformer over patches of pictures [B, C, H, W] or videos [B, C, F, H, W], told a timestep and "
        "a text [B, M, context_dim].")
    .forward<&DiTModel::forward>("hidden_states, timestep, encoder_hidden_states=None, encoder_attention_mask=None");

}  // namespace sf::models
