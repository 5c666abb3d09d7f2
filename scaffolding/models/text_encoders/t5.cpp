#include "scaffolding/models/text_encoders/t5.h"

#include <algorithm>
#include <cmath>

#include "scaffolding/models/parts/attention.h"
#include "scaffolding/models/parts/config_checks.h"
#include "scaffolding/nn/init.h"
#include "scaffolding/nn/streaming/residence.h"
#include "scaffolding/ops/ops.h"

namespace sf::models {

io::Fields T5Config::fields() {
  return {{"vocab_size", &vocab_size},
          {"d_model", &d_model},
          {"d_kv", &d_kv},
          {"d_ff", &d_ff},
          {"num_layers", &num_layers},
          {"num_decoder_layers", &num_decoder_layers},
          {"num_heads", &num_heads},
          {"relative_attention_num_buckets", &relative_attention_num_buckets},
          {"relative_attention_max_distance", &relative_attention_max_distance},
          {"dropout_rate", &dropout_rate},
          {"layer_norm_epsilon", &layer_norm_epsilon},
          {"initializer_factor", &initializer_factor},
          {"feed_forward_proj", &feed_forward_proj},
          {"use_cache", &use_cache},
          {"pad_token_id", &pad_token_id},
          {"eos_token_id", &eos_token_id},
          {"classifier_dropout", &classifier_dropout},
          {"is_encoder_decoder", &is_encoder_decoder},
          {"dense_act_fn", &dense_act_fn},
          {"is_gated_act", &is_gated_act},
          {"tie_word_embeddings", &tie_word_embeddings},
          {"output_past", &output_past},
          {"decoder_start_token_id", &decoder_start_token_id}};
}

namespace {

const char* const kT5 = T5EncoderModel::kName;
constexpr std::string_view kGate = "gated-";
constexpr double kMostFloat16 = 65504;

T5Config checked(T5Config c) {
  check_sizes(kT5, {{"vocab_size", c.vocab_size},
                    {"d_model", c.d_model},
                    {"d_kv", c.d_kv},
                    {"d_ff", c.d_ff},
                    {"num_heads", c.num_heads},
                    {"relative_attention_num_buckets", c.relative_attention_num_buckets},
                    {"relative_attention_max_distance", c.relative_attention_max_distance}});
  check_num_layers(kT5, c.num_layers);
  SF_CHECK(
      c.relative_attention_num_buckets >= 4 && c.relative_attention_max_distance > c.relative_attention_num_buckets / 4,
      kT5,
      ": relative_attention_num_buckets must be at least 4 and relative_attention_max_distance above a quarter of it, "
      "got ",
      c.relative_attention_num_buckets, " and ", c.relative_attention_max_distance);
  SF_CHECK(c.dropout_rate >= 0 && c.dropout_rate <= 1, kT5, ": dropout_rate must be between 0 and 1, got ",
           c.dropout_rate);
  const bool gated = c.feed_forward_proj.starts_with(kGate);
  std::string activation = gated ? c.feed_forward_proj.substr(kGate.size()) : c.feed_forward_proj;
  SF_CHECK(activation == "relu" || activation == "gelu" || activation == "gelu_new" || activation == "silu", kT5,
           ": feed_forward_proj must be relu, gelu, gelu_new or silu, with gated- before it or not, got '",
           c.feed_forward_proj, "'");
  if (c.feed_forward_proj == "gated-gelu") activation = "gelu_new";  // as the models of this name were trained
  c.dense_act_fn = activation;
  c.is_gated_act = gated;
  return c;
}

// transformers' name of an activation as ProjectOptions has it.
std::string activation_of(const std::string& name) { return name == "gelu_new" ? "gelu_tanh" : name; }

// In float16 what has become infinite goes back to where the next block can compute with it, as in transformers.
Tensor within_float16(const Tensor& x) {
  if (x.dtype() != kFloat16) return x;
  auto number = [&](double v) { return full({}, v, kFloat16, x.device()); };
  Tensor most = where(any(isinf(x)), number(kMostFloat16 - 1000), number(kMostFloat16));
  return maximum(minimum(x, most), -most);
}

nn::Linear linear(int64_t in, int64_t out, double std) {
  nn::Linear made(in, out, false);
  nn::init::normal_(made.weight, 0, std);
  return made;
}

}  // namespace

T5LayerNorm::T5LayerNorm(int64_t d_model, double eps, double factor)
    : variance_epsilon(eps), weight(nn::parameter(full({d_model}, factor))) {}

Tensor T5LayerNorm::forward(const Tensor& x) const {
  if (x.dtype() == weight.dtype()) return rms_norm(x, weight.shape(), weight, variance_epsilon);
  return rms_norm(x, weight.shape(), {}, variance_epsilon).to(weight.dtype()) * weight;
}

T5DenseActDense::T5DenseActDense(const T5Config& c)
    : activation(*c.dense_act_fn),
      wo(linear(c.d_ff, c.d_model, c.initializer_factor / std::sqrt(double(c.d_ff)))),
      dropout(c.dropout_rate) {
  const double std = c.initializer_factor / std::sqrt(double(c.d_model));
  if (!*c.is_gated_act) {
    wi.emplace(linear(c.d_model, c.d_ff, std));
    return;
  }
  wi_0.emplace(linear(c.d_model, c.d_ff, std));
  wi_1.emplace(linear(c.d_model, c.d_ff, std));
}

Tensor T5DenseActDense::forward(const Tensor& x) const {
  const ProjectOptions activated{.activation = activation_of(activation)};
  Tensor h = wi ? project(*wi, x, activated) : project(*wi_0, x, activated) * (*wi_1)(x);
  return wo(dropout(h).to(wo.weight.dtype()));
}

T5LayerFF::T5LayerFF(const T5Config& c)
    : DenseReluDense(c), layer_norm(c.d_model, c.layer_norm_epsilon, c.initializer_factor), dropout(c.dropout_rate) {}

Tensor T5LayerFF::forward(const Tensor& x) const { return x + dropout(DenseReluDense(layer_norm(x))); }

T5Attention::T5Attention(const T5Config& c, bool has_relative_attention_bias)
    : n_heads(c.num_heads),
      num_buckets(c.relative_attention_num_buckets),
      max_distance(c.relative_attention_max_distance),
      dropout(c.dropout_rate),
      q(linear(c.d_model, c.num_heads * c.d_kv, c.initializer_factor / std::sqrt(double(c.d_model) * double(c.d_kv)))),
      k(linear(c.d_model, c.num_heads * c.d_kv, c.initializer_factor / std::sqrt(double(c.d_model)))),
      v(linear(c.d_model, c.num_heads * c.d_kv, c.initializer_factor / std::sqrt(double(c.d_model)))),
      o(linear(c.num_heads * c.d_kv, c.d_model,
               c.initializer_factor / std::sqrt(double(c.num_heads) * double(c.d_kv)))) {
  if (!has_relative_attention_bias) return;
  relative_attention_bias.emplace(num_buckets, n_heads);
  nn::init::normal_(relative_attention_bias->weight, 0, c.initializer_factor / std::sqrt(double(c.d_model)));
}

int64_t t5_position_bucket(int64_t distance, int64_t num_buckets, int64_t max_distance) {
  const int64_t half = num_buckets / 2, exact = half / 2, later = distance > 0 ? half : 0;
  distance = std::abs(distance);
  if (distance < exact) return later + distance;
  // In float32, whose rounding decides where a distance is at the edge of two buckets.
  const float part = std::log(float(distance) / float(exact)) / float(std::log(double(max_distance) / double(exact)));
  return later + std::min(half - 1, exact + int64_t(part * float(half - exact)));
}

Tensor T5Attention::compute_bias(int64_t tokens) const {
  const nn::WeightsHere here(*this);
  std::vector<int64_t> buckets(size_t(2 * tokens - 1)), table;
  for (int64_t d = 1 - tokens; d < tokens; ++d)
    buckets[size_t(d + tokens - 1)] = t5_position_bucket(d, num_buckets, max_distance);
  table.reserve(size_t(tokens * tokens));
  for (int64_t own = 0; own < tokens; ++own) {
    auto first = buckets.begin() + (tokens - 1 - own);
    table.insert(table.end(), first, first + tokens);
  }
  Tensor numbers = tensor(table, {tokens, tokens}).to(relative_attention_bias->weight.device());
  return (*relative_attention_bias)(numbers).permute({2, 0, 1}).unsqueeze(0);
}

Tensor T5Attention::forward(const Tensor& x, const Tensor& position_bias) const {
  const Tensors qkv = project_each({&q, &k, &v}, x);
  return o(attend(qkv[0], qkv[1], qkv[2], n_heads,
                  {.mask = position_bias, .dropout = training ? dropout : 0, .scale = 1.0}));
}

bool T5Attention::pack() { return is_plain(*this) && models::pack({&q, &k, &v}); }

T5LayerSelfAttention::T5LayerSelfAttention(const T5Config& c, bool has_relative_attention_bias)
    : SelfAttention(c, has_relative_attention_bias),
      layer_norm(c.d_model, c.layer_norm_epsilon, c.initializer_factor),
      dropout(c.dropout_rate) {}

Tensor T5LayerSelfAttention::forward(const Tensor& x, const Tensor& position_bias) const {
  return x + dropout(SelfAttention(layer_norm(x), position_bias));
}

T5Block::T5Block(const T5Config& c, bool has_relative_attention_bias)
    : layer(T5LayerSelfAttention(c, has_relative_attention_bias), T5LayerFF(c)) {}

Tensor T5Block::forward(const Tensor& hidden_states, const Tensor& position_bias) const {
  auto layers = [this](const Tensors& in) -> Tensors {
    return {within_float16(layer.get<1>()(within_float16(layer.get<0>()(in[0], in[1]))))};
  };
  return run(layers, {hidden_states, position_bias})[0];
}

T5Stack::T5Stack(const T5Config& c)
    : final_layer_norm(c.d_model, c.layer_norm_epsilon, c.initializer_factor), dropout(c.dropout_rate) {
  for (int64_t i = 0; i < c.num_layers; ++i) block.emplace_back(c, i == 0);
}

Tensors T5Stack::forward(const Tensor& inputs_embeds, const Tensor& attention_mask, bool output_hidden_states) const {
  Tensor x = dropout(inputs_embeds);
  const auto& first = block[0].layer.get<0>();
  Tensor bias = [&] {
    const nn::WeightsHere here(first);
    return first.SelfAttention.compute_bias(x.size(1));
  }();
  if (attention_mask) {
    const double lowest = bias.dtype() == kFloat16 ? -kMostFloat16 : -3.38e38;  // which bfloat16 has too
    bias = where(ne(attention_mask, wrapped(0)).unsqueeze(1).unsqueeze(1), bias,
                 full({}, lowest, bias.dtype(), bias.device()));
  }
  Tensors out(1);
  for (auto& layers : block) {
    if (output_hidden_states) out.push_back(x);
    x = layers(x, bias);
  }
  out[0] = dropout(final_layer_norm(x));
  if (output_hidden_states) out.push_back(out[0]);
  return out;
}

T5EncoderModel::T5EncoderModel(Config config)
    : ConfiguredModel(checked(std::move(config))), shared(options.vocab_size, options.d_model), encoder(options) {
  if (options.initializer_factor != 1) nn::init::normal_(shared.weight, 0, options.initializer_factor);
}

std::string T5EncoderModel::current_key(const std::string& key) const {
  for (const char* other : {"decoder.", "lm_head."})
    if (key.starts_with(other)) return "";
  return key == "encoder.embed_tokens.weight" ? "shared.weight" : key;
}

bool T5EncoderModel::kept_float32(const std::string& key) const { return key.ends_with(".wo.weight"); }

Tensors T5EncoderModel::forward(const Tensor& input_ids, const Tensor& attention_mask, const Tensor& inputs_embeds,
                                bool output_hidden_states) const {
  SF_CHECK(bool(input_ids) != bool(inputs_embeds), kT5, ": takes either input_ids or inputs_embeds");
  if (input_ids)
    SF_CHECK(input_ids.ndim() == 2 && input_ids.size(1) > 0, kT5, ": input_ids must be [batch, tokens], got ",
             input_ids.shape());
  if (inputs_embeds)
    SF_CHECK(inputs_embeds.ndim() == 3 && inputs_embeds.size(1) > 0 && inputs_embeds.size(2) == options.d_model, kT5,
             ": inputs_embeds must be [batch, tokens, ", options.d_model, "], got ", inputs_embeds.shape());
  Tensor x = input_ids ? shared(input_ids) : inputs_embeds;
  check_shape(kT5, "attention_mask", attention_mask, {x.size(0), x.size(1)});
  return encoder.forward(x, attention_mask, output_hidden_states);
}

SF_MODEL(T5EncoderModel)
    .doc("transformers' T5EncoderModel: token ids [B, N] to hidden states [B, N, d_model].")
    .forward<&T5EncoderModel::forward>(
        "input_ids=None, attention_mask=None, inputs_embeds=None, output_hidden_states=False");

}  // namespace sf::models
