#include "scaffolding/models/text_encoders/gemma3.h"

#include <cmath>

#include "scaffolding/autograd/mode.h"
#include "scaffolding/core/half.h"
#include "scaffolding/models/files_of.h"
#include "scaffolding/models/parts/config_checks.h"
#include "scaffolding/nn/init.h"
#include "scaffolding/nn/streaming/residence.h"
#include "scaffolding/ops/ops.h"

namespace sf::models {

namespace {

const char* const kGemma = Gemma3TextModel::kName;

nn::Linear gemma_linear(const Gemma3TextConfig& c, int64_t in, int64_t out, bool bias = false) {
  nn::Linear made(in, out, bias);
  nn::init::normal_(made.weight, 0, c.initializer_range);
  if (bias) nn::init::zeros_(made.bias);
  return made;
}

Gemma3RMSNorm gemma_norm(const Gemma3TextConfig& c, int64_t channels) {
  return Gemma3RMSNorm(channels, c.rms_norm_eps);
}

double rounded(double value, DType dtype) {
  const auto narrow = float(value);  // torch keeps the number in float32, whatever the rows are
  return dtype == kBFloat16 ? to_float(to_bfloat16(narrow)) : dtype == kFloat16 ? to_float(to_half(narrow)) : narrow;
}

// Angles of positions [B or 1, N] as [B or 1, 1, N, head_dim], for either half of a head's channels.
Tensor gemma_angles(const Gemma3TextConfig& c, const Gemma3Rope& rope, const Tensor& positions) {
  const auto theta = float(rope.theta), factor = float(rope.factor);
  std::vector<float> frequencies;  // in float32, as transformers computes them
  for (int64_t i = 0; i < c.head_dim; i += 2)
    frequencies.push_back(1 / std::pow(theta, float(i) / float(c.head_dim)) / factor);
  const Tensor f = tensor(frequencies, {c.head_dim / 2}, kFloat32).to(positions.device());
  const Tensor turned = positions.to(kFloat32).unsqueeze(-1) * f;
  return cat({turned, turned}, -1).unsqueeze(1);
}

// The columns that some row sees, from the first to the last one; all of them where none does. On the host.
std::pair<int64_t, int64_t> seen_columns(const Tensor& seen) {
  const int64_t batch = seen.size(0), tokens = seen.size(1);
  const bool* at = seen.data<bool>();
  int64_t first = tokens, end = 0;
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t i = 0; i < tokens; ++i)
      if (at[b * tokens + i]) first = std::min(first, i), end = std::max(end, i + 1);
  return first < end ? std::pair(first, end) : std::pair(int64_t(0), tokens);
}

bool sees_all(const Tensor& seen) {
  const bool* at = seen.data<bool>();
  return std::all_of(at, at + seen.numel(), [](bool v) { return v; });
}

}  // namespace

Gemma3RMSNorm::Gemma3RMSNorm(int64_t channels, double e) : eps(e), weight(nn::parameter(zeros({channels}))) {}

Tensor Gemma3RMSNorm::forward(const Tensor& x) const {
  const Tensor wide = weight.dtype() == kFloat64 ? weight : weight.to(kFloat32);
  return rms_norm(x, weight.shape(), wide + 1, eps);
}

std::string Gemma3RMSNorm::extra_repr() const {
  Message m;
  m << weight.shape() << ", eps=" << eps;
  return m.str();
}

Tensor Gemma3TextScaledWordEmbedding::forward(const Tensor& input) const {
  return nn::Embedding::forward(input) * rounded(std::sqrt(double(embedding_dim)), weight.dtype());
}

Gemma3Attention::Gemma3Attention(const Gemma3TextConfig& c)
    : heads(c.num_attention_heads),
      kv_heads(c.num_key_value_heads),
      scale(1 / std::sqrt(double(c.query_pre_attn_scalar))),
      dropout(c.attention_dropout),
      q_proj(gemma_linear(c, c.hidden_size, heads * c.head_dim, c.attention_bias)),
      k_proj(gemma_linear(c, c.hidden_size, kv_heads * c.head_dim, c.attention_bias)),
      v_proj(gemma_linear(c, c.hidden_size, kv_heads * c.head_dim, c.attention_bias)),
      o_proj(gemma_linear(c, heads * c.head_dim, c.hidden_size, c.attention_bias)),
      q_norm(gemma_norm(c, c.head_dim)),
      k_norm(gemma_norm(c, c.head_dim)) {}

Tensor Gemma3Attention::forward(const Tensor& x, const Tensor& cos, const Tensor& sin, const Tensor& mask) const {
  const RotaryPositions rotary{cos, sin, false};
  const Tensors qkv = project_each({&q_proj, &k_proj, &v_proj}, x);
  auto normed = [](const Tensor& t, int64_t n, const Gemma3RMSNorm& norm) {
    return norm(t.reshape({t.size(0), t.size(1), n, t.size(2) / n})).flatten(2);
  };
  return o_proj(attend(normed(qkv[0], heads, q_norm), normed(qkv[1], kv_heads, k_norm), qkv[2], heads,
                       {.mask = mask,
                        .causal = !mask,
                        .dropout = training ? dropout : 0,
                        .scale = scale,
                        .rotary = &rotary,
                        .kv_heads = kv_heads}));
}

bool Gemma3Attention::pack() { return is_plain(*this) && models::pack({&q_proj, &k_proj, &v_proj}); }

Gemma3MLP::Gemma3MLP(const Gemma3TextConfig& c)
    : gate_proj(gemma_linear(c, c.hidden_size, c.intermediate_size)),
      up_proj(gemma_linear(c, c.hidden_size, c.intermediate_size)),
      down_proj(gemma_linear(c, c.intermediate_size, c.hidden_size)) {}

Tensor Gemma3MLP::forward(const Tensor& x) const {
  return project(down_proj, project(gate_proj, x, {.activation = "gelu_tanh"}) * project(up_proj, x));
}

Gemma3DecoderLayer::Gemma3DecoderLayer(const Gemma3TextConfig& c)
    : self_attn(c),
      mlp(c),
      input_layernorm(gemma_norm(c, c.hidden_size)),
      post_attention_layernorm(gemma_norm(c, c.hidden_size)),
      pre_feedforward_layernorm(gemma_norm(c, c.hidden_size)),
      post_feedforward_layernorm(gemma_norm(c, c.hidden_size)) {}

Tensor Gemma3DecoderLayer::forward(const Tensor& hidden_states, const Tensor& cos, const Tensor& sin,
                                   const Tensor& mask) const {
  auto layer = [this, cos, sin, mask](const Tensors& in) -> Tensors {
    const Tensor x = in[0] + post_attention_layernorm(self_attn(input_layernorm(in[0]), cos, sin, mask));
    return {x + post_feedforward_layernorm(mlp(pre_feedforward_layernorm(x)))};
  };
  return CheckpointedModule::run(layer, {hidden_states})[0];
}

Gemma3TextModel::Gemma3TextModel(Config config)
    : ConfiguredModel(checked_gemma3(std::move(config))),
      embed_tokens(options.vocab_size, options.hidden_size, {.padding_idx = options.pad_token_id}),
      norm(gemma_norm(options, options.hidden_size)) {
  nn::init::normal_(embed_tokens.weight, 0, options.initializer_range);
  for (int64_t i = 0; i < options.num_hidden_layers; ++i) layers.emplace_back(options);
}

void Gemma3TextModel::run(Tensor x, const Tensor& positions, const Tensor& seen,
                          const std::function<void(const Tensor&)>& take) const {
  const int64_t tokens = x.size(1);
  const std::vector<size_t> types = gemma3_layer_types(options);
  std::array<Gemma3Places, kGemma3LayerTypes.size()> places;
  const Tensor place = arange(0, tokens, 1, kInt64, x.device()), from = place.unsqueeze(0), to = place.unsqueeze(1);
  auto visible = [&](const Tensor& mask) {  // [N, N] and what is padding
    return seen ? logical_and(mask, seen.unsqueeze(1).unsqueeze(1)) : mask;
  };
  if (seen) places[0].mask = visible(le(from, to));
  // A window that holds the whole text is none.
  places[1].mask = options.sliding_window.value_or(tokens) >= tokens
                       ? places[0].mask
                       : visible(logical_and(le(from, to), gt(from, to - wrapped(*options.sliding_window))));
  for (size_t i = 0; i < places.size(); ++i) {
    const Tensor turned = gemma_angles(options, gemma3_rope(options, i), positions);
    places[i].cos = cos(turned), places[i].sin = sin(turned);
  }
  for (size_t i = 0; i < types.size(); ++i) {
    take(x);
    const Gemma3Places& p = places[types[i]];
    x = layers[int64_t(i)](x, p.cos, p.sin, p.mask);
  }
  take(norm(x));
}

Tensors Gemma3TextModel::forward(const Tensor& input_ids, const Tensor& attention_mask, const Tensor& position_ids,
                                 const Tensor& inputs_embeds, bool output_hidden_states) const {
  SF_CHECK(bool(input_ids) != bool(inputs_embeds), kGemma, ": takes either input_ids or inputs_embeds");
  if (input_ids)
    SF_CHECK(input_ids.ndim() == 2 && input_ids.size(1) > 0, kGemma, ": input_ids must be [batch, tokens], got ",
             input_ids.shape());
  if (inputs_embeds)
    SF_CHECK(inputs_embeds.ndim() == 3 && inputs_embeds.size(1) > 0 && inputs_embeds.size(2) == options.hidden_size,
             kGemma, ": inputs_embeds must be [batch, tokens, ", options.hidden_size, "], got ", inputs_embeds.shape());
  const Tensor x = input_ids ? embed_tokens(input_ids) : inputs_embeds;
  const int64_t batch = x.size(0), tokens = x.size(1);
  check_shape(kGemma, "attention_mask", attention_mask, {batch, tokens});
  SF_CHECK(!position_ids || (position_ids.ndim() == 2 && position_ids.size(1) == tokens &&
                             (position_ids.size(0) == 1 || position_ids.size(0) == batch)),
           kGemma, ": position_ids must be [1 or ", batch, ", ", tokens, "], got ",
           position_ids ? position_ids.shape() : Shape());
  const Tensor positions =
      position_ids ? position_ids.to(x.device()) : arange(0, tokens, 1, kInt64, x.device()).unsqueeze(0);
  Tensors out(1);
  run(x, positions, attention_mask ? ne(attention_mask.to(x.device()), wrapped(0)) : Tensor(),
      [&](const Tensor& state) {
        out[0] = state;
        if (output_hidden_states) out.push_back(state);
      });
  return out;
}

Tensor Gemma3TextModel::stacked_hidden_states(const Tensor& input_ids, const Tensor& attention_mask) const {
  check_defined(kGemma, "input_ids", input_ids);
  SF_CHECK(input_ids.ndim() == 2 && input_ids.size(1) > 0, kGemma, ": input_ids must be [batch, tokens], got ",
           input_ids.shape());
  const int64_t batch = input_ids.size(0), tokens = input_ids.size(1);
  check_shape(kGemma, "attention_mask", attention_mask, {batch, tokens});
  const autograd::NoGrad no_grad;
  const nn::WeightsHere here(*this);  // past the model's own call
  int64_t first = 0, end = tokens;
  Tensor seen = attention_mask ? ne(attention_mask, wrapped(0)) : Tensor();
  if (seen && !seen.device().is_meta()) {
    const Tensor on_host = contiguous(seen.to(Device()));
    std::tie(first, end) = seen_columns(on_host);
    const Tensor within = contiguous(on_host.narrow(1, first, end - first));
    seen = sees_all(within) ? Tensor() : within;
  }
  const Tensor x = embed_tokens(input_ids.narrow(1, first, end - first));
  Tensor out = zeros({batch, tokens, options.hidden_size, options.num_hidden_layers + 1}, x.dtype(), x.device());
  const Tensor computed = out.narrow(1, first, end - first);
  int64_t n = 0;
  run(x, arange(first, end, 1, kInt64, x.device()).unsqueeze(0), seen ? seen.to(x.device()) : seen,
      [&](const Tensor& state) { computed.select(3, n++).copy_(state); });
  return out.flatten(2);
}

SF_MODEL(Gemma3TextModel)
    .doc("transformers' Gemma3TextModel: token ids [B, N] to hidden states [B, N, hidden_size].")
    .forward<&Gemma3TextModel::forward>(
        "input_ids=None, attention_mask=None, position_ids=None, inputs_embeds=None, output_hidden_states=False")
    .method<&Gemma3TextModel::stacked_hidden_states>("stacked_hidden_states", "input_ids, attention_mask=None");
SF_FILES_OF(Gemma3TextModel, "Gemma3ForConditionalGeneration, Gemma3Model, Gemma3ForCausalLM");

}  // namespace sf::models
