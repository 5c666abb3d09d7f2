#include "scaffolding/models/text_encoders/qwen3.h"

#include <cmath>

#include "scaffolding/models/parts/config_checks.h"
#include "scaffolding/models/parts/feed_forward.h"
#include "scaffolding/nn/init.h"
#include "scaffolding/ops/ops.h"

namespace sf::models {

io::Fields Qwen3Config::fields() {
  return {{"vocab_size", &vocab_size},
          {"hidden_size", &hidden_size},
          {"intermediate_size", &intermediate_size},
          {"num_hidden_layers", &num_hidden_layers},
          {"num_attention_heads", &num_attention_heads},
          {"num_key_value_heads", &num_key_value_heads},
          {"head_dim", &head_dim},
          {"hidden_act", &hidden_act},
          {"max_position_embeddings", &max_position_embeddings},
          {"initializer_range", &initializer_range},
          {"rms_norm_eps", &rms_norm_eps},
          {"use_cache", &use_cache},
          {"tie_word_embeddings", &tie_word_embeddings},
          {"rope_parameters", &rope_parameters},
          {"attention_bias", &attention_bias},
          {"use_sliding_window", &use_sliding_window},
          {"sliding_window", &sliding_window},
          {"max_window_layers", &max_window_layers},
          {"layer_types", &layer_types},
          {"attention_dropout", &attention_dropout},
          {"pad_token_id", &pad_token_id},
          {"bos_token_id", &bos_token_id},
          {"eos_token_id", &eos_token_id}};
}

namespace {

const char* const kQwen3 = Qwen3Model::kName;
constexpr double kQwenTheta = 10000;  // where a config says none
constexpr const char* kFullAttention = "full_attention";

bool is_said(const io::Object& o) { return !o.is(io::Object::None); }

int64_t kv_heads_of(const Qwen3Config& c) { return c.num_key_value_heads.value_or(c.num_attention_heads); }

// Positions that are stretched, for texts longer than those of the training, are not here.
void check_qwen_rope(const io::Object& rope) {
  if (!is_said(rope)) return;
  SF_CHECK(rope.is_dict(), kQwen3, ": rope_parameters must be a dict or absent");
  for (const char* name : {"rope_type", "type"}) {
    const io::Object* type = rope.find(name);
    if (!type || !is_said(*type)) continue;
    const std::string said = type->is(io::Object::String) ? type->text() : "";
    SF_CHECK_AS(NotSupported, said == "default", kQwen3, ": rope_parameters must have the ", name, " 'default', got '",
                said, "'");
  }
}

double rope_theta_of(const Qwen3Config& c) {
  const io::Object* theta = is_said(c.rope_parameters) ? c.rope_parameters.find("rope_theta") : nullptr;
  return theta && is_said(*theta) ? theta->as_float() : kQwenTheta;
}

Qwen3Config checked(Qwen3Config c) {
  check_sizes(kQwen3, {{"vocab_size", c.vocab_size},
                       {"hidden_size", c.hidden_size},
                       {"intermediate_size", c.intermediate_size},
                       {"num_attention_heads", c.num_attention_heads},
                       {"num_key_value_heads", kv_heads_of(c)},
                       {"head_dim", c.head_dim},
                       {"max_position_embeddings", c.max_position_embeddings}});
  SF_CHECK(c.num_hidden_layers > 0 && c.num_hidden_layers <= kMostLayers, kQwen3,
           ": num_hidden_layers must be between 1 and ", kMostLayers, ", got ", c.num_hidden_layers);
  SF_CHECK(c.num_attention_heads % kv_heads_of(c) == 0, kQwen3,
           ": num_key_value_heads must divide num_attention_heads, got ", kv_heads_of(c), " and ",
           c.num_attention_heads);
  SF_CHECK(c.num_attention_heads * c.head_dim <= kMostChannels, kQwen3,
           ": num_attention_heads * head_dim must be at most ", kMostChannels, ", got ",
           c.num_attention_heads * c.head_dim);
  SF_CHECK(c.head_dim % 2 == 0, kQwen3, ": head_dim must be even, got ", c.head_dim);
  SF_CHECK(c.attention_dropout >= 0 && c.attention_dropout <= 1, kQwen3,
           ": attention_dropout must be between 0 and 1, got ", c.attention_dropout);
  SF_CHECK(!c.pad_token_id || (*c.pad_token_id >= 0 && *c.pad_token_id < c.vocab_size), kQwen3,
           ": pad_token_id must be below vocab_size, got ", c.pad_token_id.value_or(0), " and ", c.vocab_size);
  SF_CHECK_AS(NotSupported, c.hidden_act == "silu", kQwen3, ": hidden_act must be silu, got '", c.hidden_act, "'");
  SF_CHECK_AS(NotSupported, !c.use_sliding_window, kQwen3,
              ": use_sliding_window is not supported: each token sees all before it");
  if (is_said(c.layer_types)) {
    SF_CHECK(c.layer_types.is_sequence() && int64_t(c.layer_types.items().size()) == c.num_hidden_layers, kQwen3,
             ": layer_types must be a list with one for each of the ", c.num_hidden_layers, " layers");
    for (auto& type : c.layer_types.items())
      SF_CHECK_AS(NotSupported, type.is(io::Object::String) && type.text() == kFullAttention, kQwen3,
                  ": layer_types must be ", kFullAttention, ", got '", type.is(io::Object::String) ? type.text() : "",
                  "'");
  }
  check_qwen_rope(c.rope_parameters);
  SF_CHECK(rope_theta_of(c) > 0, kQwen3, ": rope_theta must be above 0, got ", rope_theta_of(c));
  return c;
}

nn::Linear linear(const Qwen3Config& c, int64_t in, int64_t out, bool bias = false) {
  nn::Linear made(in, out, bias);
  nn::init::normal_(made.weight, 0, c.initializer_range);
  if (bias) nn::init::zeros_(made.bias);
  return made;
}

nn::RMSNorm norm_of(const Qwen3Config& c, int64_t channels) { return nn::RMSNorm(Shape{channels}, c.rms_norm_eps); }

// Angles of positions [B or 1, N] as [B or 1, 1, N, head_dim], for either half of a head's channels.
Tensor angles(const Qwen3Config& c, const Tensor& positions) {
  const int64_t half = c.head_dim / 2;
  const auto theta = float(rope_theta_of(c));
  std::vector<float> frequencies;  // in float32, as transformers computes them
  for (int64_t i = 0; i < half; ++i) frequencies.push_back(1 / std::pow(theta, float(2 * i) / float(c.head_dim)));
  const Tensor f = tensor(frequencies, {half}, kFloat32).to(positions.device());
  const Tensor turned = positions.to(kFloat32).unsqueeze(-1) * f;
  return cat({turned, turned}, -1).unsqueeze(1);
}

}  // namespace

Qwen3Attention::Qwen3Attention(const Qwen3Config& c)
    : heads(c.num_attention_heads),
      kv_heads(kv_heads_of(c)),
      dropout(c.attention_dropout),
      q_proj(linear(c, c.hidden_size, heads * c.head_dim, c.attention_bias)),
      k_proj(linear(c, c.hidden_size, kv_heads * c.head_dim, c.attention_bias)),
      v_proj(linear(c, c.hidden_size, kv_heads * c.head_dim, c.attention_bias)),
      o_proj(linear(c, heads * c.head_dim, c.hidden_size, c.attention_bias)),
      q_norm(norm_of(c, c.head_dim)),
      k_norm(norm_of(c, c.head_dim)) {}

Tensor Qwen3Attention::forward(const Tensor& x, const Tensor& cos, const Tensor& sin, const Tensor& mask) const {
  const RotaryPositions rotary{cos, sin, false};
  const Tensors qkv = project_each({&q_proj, &k_proj, &v_proj}, x);
  return o_proj(attend(qkv[0], qkv[1], qkv[2], heads,
                       {.mask = mask,
                        .causal = !mask,
                        .dropout = training ? dropout : 0,
                        .norm_q = &q_norm,
                        .norm_k = &k_norm,
                        .rotary = &rotary,
                        .kv_heads = kv_heads}));
}

bool Qwen3Attention::pack() { return is_plain(*this) && models::pack({&q_proj, &k_proj, &v_proj}); }

Qwen3MLP::Qwen3MLP(const Qwen3Config& c)
    : gate_proj(linear(c, c.hidden_size, c.intermediate_size)),
      up_proj(linear(c, c.hidden_size, c.intermediate_size)),
      down_proj(linear(c, c.intermediate_size, c.hidden_size)) {}

Tensor Qwen3MLP::forward(const Tensor& x) const { return project(down_proj, gated(gate_proj, up_proj, x)); }

Qwen3DecoderLayer::Qwen3DecoderLayer(const Qwen3Config& c)
    : self_attn(c),
      mlp(c),
      input_layernorm(norm_of(c, c.hidden_size)),
      post_attention_layernorm(norm_of(c, c.hidden_size)) {}

Tensor Qwen3DecoderLayer::forward(const Tensor& hidden_states, const Tensor& cos, const Tensor& sin,
                                  const Tensor& mask) const {
  auto layer = [this, cos, sin, mask](const Tensors& in) -> Tensors {
    const Tensor x = in[0] + self_attn(input_layernorm(in[0]), cos, sin, mask);
    return {x + mlp(post_attention_layernorm(x))};
  };
  return run(layer, {hidden_states})[0];
}

Qwen3Model::Qwen3Model(Config config)
    : ConfiguredModel(checked(std::move(config))),
      embed_tokens(options.vocab_size, options.hidden_size, {.padding_idx = options.pad_token_id}),
      norm(norm_of(options, options.hidden_size)) {
  nn::init::normal_(embed_tokens.weight, 0, options.initializer_range);
  for (int64_t i = 0; i < options.num_hidden_layers; ++i) layers.emplace_back(options);
}

io::Object Qwen3Model::flat_config(const io::Object& config) {
  if (!config.is_dict() || (!config.find("rope_theta") && !config.find("rope_scaling"))) return config;
  const io::Object *theta = config.find("rope_theta"), *scaling = config.find("rope_scaling"),
                   *newer = config.find("rope_parameters");
  std::vector<io::Object> all, rope{io::Object("rope_type"), io::Object("default")};
  if (theta && is_said(*theta)) rope.insert(rope.end(), {io::Object("rope_theta"), *theta});
  const auto rope_of_older = io::Object::container(io::Object::Dict, std::move(rope));
  const std::vector<io::Object>& items = config.items();  // key, value, key, value ...
  for (size_t i = 0; i + 1 < items.size(); i += 2) {
    const std::string key = items[i].is(io::Object::String) ? items[i].text() : "";
    if (key != "rope_theta" && key != "rope_scaling" && key != "rope_parameters")
      all.insert(all.end(), {items[i], items[i + 1]});
  }
  const io::Object& chosen = newer && is_said(*newer)       ? *newer
                             : scaling && is_said(*scaling) ? *scaling  // its type is refused where it is no default
                                                            : rope_of_older;
  all.insert(all.end(), {io::Object("rope_parameters"), chosen});
  return io::Object::container(io::Object::Dict, std::move(all));
}

std::string Qwen3Model::current_key(const std::string& key) const {
  if (key.starts_with("lm_head.") || key.ends_with("rotary_emb.inv_freq")) return "";
  constexpr std::string_view kInside = "model.";
  return key.starts_with(kInside) ? key.substr(kInside.size()) : key;
}

Tensors Qwen3Model::forward(const Tensor& input_ids, const Tensor& attention_mask, const Tensor& position_ids,
                            const Tensor& inputs_embeds, bool output_hidden_states) const {
  SF_CHECK(bool(input_ids) != bool(inputs_embeds), kQwen3, ": takes either input_ids or inputs_embeds");
  if (input_ids)
    SF_CHECK(input_ids.ndim() == 2 && input_ids.size(1) > 0, kQwen3, ": input_ids must be [batch, tokens], got ",
             input_ids.shape());
  if (inputs_embeds)
    SF_CHECK(inputs_embeds.ndim() == 3 && inputs_embeds.size(1) > 0 && inputs_embeds.size(2) == options.hidden_size,
             kQwen3, ": inputs_embeds must be [batch, tokens, ", options.hidden_size, "], got ", inputs_embeds.shape());
  Tensor x = input_ids ? embed_tokens(input_ids) : inputs_embeds;
  const int64_t batch = x.size(0), tokens = x.size(1);
  check_shape(kQwen3, "attention_mask", attention_mask, {batch, tokens});
  SF_CHECK(!position_ids || (position_ids.ndim() == 2 && position_ids.size(1) == tokens &&
                             (position_ids.size(0) == 1 || position_ids.size(0) == batch)),
           kQwen3, ": position_ids must be [1 or ", batch, ", ", tokens, "], got ",
           position_ids ? position_ids.shape() : Shape());
  const Tensor places = arange(0, tokens, 1, kInt64, x.device()),
               turned = angles(options, position_ids ? position_ids.to(x.device()) : places.unsqueeze(0)),
               cos = sf::cos(turned), sin = sf::sin(turned);
  Tensor mask;
  if (attention_mask) {
    const Tensor seen = ne(attention_mask.to(x.device()), wrapped(0)).unsqueeze(1).unsqueeze(1);  // [B, 1, 1, N]
    mask = logical_and(le(places.unsqueeze(0), places.unsqueeze(1)), seen);
  }
  Tensors out(1);
  for (auto& layer : layers) {
    if (output_hidden_states) out.push_back(x);
    x = layer(x, cos, sin, mask);
  }
  out[0] = norm(x);
  if (output_hidden_states) out.push_back(out[0]);
  return out;
}

SF_MODEL(Qwen3Model)
    .doc("transformers' Qwen3Model: token ids [B, N] to hidden states [B, N, hidden_size].")
    .forward<&Qwen3Model::forward>(
        "input_ids=None, attention_mask=None, position_ids=None, inputs_embeds=None, output_hidden_states=False");

}  // namespace sf::models
