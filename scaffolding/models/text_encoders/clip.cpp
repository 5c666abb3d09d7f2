#include "scaffolding/models/text_encoders/clip.h"

#include <algorithm>
#include <cmath>

#include "scaffolding/core/error.h"
#include "scaffolding/io/checkpoint.h"
#include "scaffolding/models/parts/attention.h"
#include "scaffolding/models/parts/feed_forward.h"
#include "scaffolding/nn/init.h"
#include "scaffolding/nn/streaming/residence.h"
#include "scaffolding/ops/ops.h"

namespace sf::models {

io::Fields CLIPTextConfig::fields() {
  return {{"vocab_size", &vocab_size},
          {"hidden_size", &hidden_size},
          {"intermediate_size", &intermediate_size},
          {"projection_dim", &projection_dim},
          {"num_hidden_layers", &num_hidden_layers},
          {"num_attention_heads", &num_attention_heads},
          {"max_position_embeddings", &max_position_embeddings},
          {"hidden_act", &hidden_act},
          {"layer_norm_eps", &layer_norm_eps},
          {"attention_dropout", &attention_dropout},
          {"initializer_range", &initializer_range},
          {"initializer_factor", &initializer_factor},
          {"pad_token_id", &pad_token_id},
          {"bos_token_id", &bos_token_id},
          {"eos_token_id", &eos_token_id}};
}

namespace {

const char* const kWho = "CLIPTextModel";

// transformers' name of an activation -> ProjectOptions'.
constexpr std::pair<std::string_view, const char*> kActivations[] = {{"quick_gelu", "quick_gelu"},
                                                                     {"gelu", "gelu"},
                                                                     {"gelu_new", "gelu_tanh"},
                                                                     {"gelu_pytorch_tanh", "gelu_tanh"},
                                                                     {"relu", "relu"},
                                                                     {"silu", "silu"},
                                                                     {"swish", "silu"}};

const char* activation_of(const std::string& hidden_act) {
  for (auto& [name, op] : kActivations)
    if (name == hidden_act) return op;
  fail(kWho, ": hidden_act must be quick_gelu, gelu, gelu_new, gelu_pytorch_tanh, relu, silu or swish, got '",
       hidden_act, "'");
}

CLIPTextConfig checked(CLIPTextConfig c) {
  for (auto& [name, value] : {std::pair{"vocab_size", c.vocab_size},
                              {"hidden_size", c.hidden_size},
                              {"intermediate_size", c.intermediate_size},
                              {"num_attention_heads", c.num_attention_heads},
                              {"max_position_embeddings", c.max_position_embeddings}})
    SF_CHECK(value > 0, kWho, ": ", name, " must be above 0, got ", value);
  SF_CHECK(c.num_hidden_layers >= 0 && c.num_hidden_layers <= kMostLayers, kWho,
           ": num_hidden_layers must be between 0 and ", kMostLayers, ", got ", c.num_hidden_layers);
  SF_CHECK(c.hidden_size % c.num_attention_heads == 0, kWho, ": num_attention_heads must divide hidden_size, got ",
           c.num_attention_heads, " and ", c.hidden_size);
  SF_CHECK(c.attention_dropout >= 0 && c.attention_dropout <= 1, kWho,
           ": attention_dropout must be between 0 and 1, got ", c.attention_dropout);
  activation_of(c.hidden_act);
  return c;
}

// transformers' initial values (Radford et al. 2021): narrower where residual branches add up.
void init_linear(const nn::Linear& linear, double std) {
  nn::init::normal_(linear.weight, 0, std);
  if (linear.bias) nn::init::zeros_(linear.bias);
}
double branch_std(const CLIPTextConfig& c) {
  return c.initializer_factor /
         std::sqrt(double(c.hidden_size) * 2 * double(std::max<int64_t>(1, c.num_hidden_layers)));
}

// Which keys each token may attend to [B, 1, N, N], bool: those up to itself that are not padding.
Tensor causal_and(const Tensor& attention_mask) {
  const int64_t n = attention_mask.size(1);
  Tensor causal = tril(ones({n, n}, kFloat32, attention_mask.device())).to(kBool);
  return logical_and(causal, ne(attention_mask, wrapped(0)).unsqueeze(1).unsqueeze(1));
}

}  // namespace

CLIPTextEmbeddings::CLIPTextEmbeddings(const CLIPTextConfig& c)
    : token_embedding(c.vocab_size, c.hidden_size), position_embedding(c.max_position_embeddings, c.hidden_size) {
  nn::init::normal_(token_embedding.weight, 0, 0.02 * c.initializer_factor);
  nn::init::normal_(position_embedding.weight, 0, 0.02 * c.initializer_factor);
}

Tensor CLIPTextEmbeddings::forward(const Tensor& input_ids, const Tensor& position_ids) const {
  Tensor positions = position_ids ? position_embedding(position_ids)
                                  : position_embedding.weight.narrow(0, 0, input_ids.size(1)).unsqueeze(0);
  return token_embedding(input_ids) + positions;
}

CLIPAttention::CLIPAttention(const CLIPTextConfig& c)
    : num_heads(c.num_attention_heads),
      dropout(c.attention_dropout),
      k_proj(c.hidden_size, c.hidden_size),
      v_proj(c.hidden_size, c.hidden_size),
      q_proj(c.hidden_size, c.hidden_size),
      out_proj(c.hidden_size, c.hidden_size) {
  for (auto* in : {&k_proj, &v_proj, &q_proj}) init_linear(*in, branch_std(c));
  init_linear(out_proj, c.initializer_factor / std::sqrt(double(c.hidden_size)));
}

// Values first: the gradients of x are added up in the reverse of this order.
Tensor CLIPAttention::compute(const Tensor& x, const Tensor& mask, const Tensor& residual) const {
  const nn::WeightsHere here(*this);  // beside() goes past the call
  const Tensors vkq = project_each({&v_proj, &k_proj, &q_proj}, x);
  const Tensor y =
      attend(vkq[2], vkq[1], vkq[0], num_heads, {.mask = mask, .causal = !mask, .dropout = training ? dropout : 0});
  return project(out_proj, y, {.residual = residual});
}

Tensor CLIPAttention::beside(const Tensor& residual, const Tensor& x, const Tensor& mask) const {
  return is_plain(*this) ? compute(x, mask, residual) : residual + (*this)(x, mask);
}

bool CLIPAttention::pack() { return is_plain(*this) && models::pack({&v_proj, &k_proj, &q_proj}); }

CLIPMLP::CLIPMLP(const CLIPTextConfig& c)
    : activation(activation_of(c.hidden_act)),
      fc1(c.hidden_size, c.intermediate_size),
      fc2(c.intermediate_size, c.hidden_size) {
  init_linear(fc1, c.initializer_factor / std::sqrt(2 * double(c.hidden_size)));
  init_linear(fc2, branch_std(c));
}

Tensor CLIPMLP::forward(const Tensor& x) const { return two_layers(fc1, activation, nullptr, fc2, x); }
Tensor CLIPMLP::beside(const Tensor& residual, const Tensor& x) const {
  if (!is_plain(*this)) return residual + (*this)(x);
  const nn::WeightsHere here(*this);
  return two_layers(fc1, activation, nullptr, fc2, x, residual);
}

CLIPEncoderLayer::CLIPEncoderLayer(const CLIPTextConfig& c)
    : self_attn(c),
      layer_norm1({c.hidden_size}, c.layer_norm_eps),
      mlp(c),
      layer_norm2({c.hidden_size}, c.layer_norm_eps) {}

Tensor CLIPEncoderLayer::forward(const Tensor& hidden_states, const Tensor& mask) const {
  auto layer = [this, mask](const Tensors& in) -> Tensors {
    Tensor x = self_attn.beside(in[0], layer_norm1(in[0]), mask);
    return {mlp.beside(x, layer_norm2(x))};
  };
  return run(layer, {hidden_states})[0];
}

CLIPEncoder::CLIPEncoder(const CLIPTextConfig& c) {
  for (int64_t i = 0; i < c.num_hidden_layers; ++i) layers.emplace_back(c);
}

CLIPTextTransformer::CLIPTextTransformer(const CLIPTextConfig& c)
    : eos_token_id(c.eos_token_id), embeddings(c), encoder(c), final_layer_norm({c.hidden_size}, c.layer_norm_eps) {}

Tensors CLIPTextTransformer::forward(const Tensor& ids, const Tensor& attention_mask, const Tensor& position_ids,
                                     bool output_hidden_states) const {
  check_defined(kWho, "input_ids", ids);
  const int64_t most = embeddings.position_embedding.num_embeddings;
  SF_CHECK(ids.ndim() == 2 && ids.size(1) > 0, kWho, ": input_ids must be [batch, tokens], got ", ids.shape());
  SF_CHECK(ids.size(1) <= most, kWho, ": input_ids must have at most max_position_embeddings=", most, " tokens, got ",
           ids.shape());
  check_shape(kWho, "attention_mask", attention_mask, ids.shape());
  Tensor mask = attention_mask ? causal_and(attention_mask) : Tensor();
  Tensor x = embeddings(ids, position_ids);
  Tensors out(2);
  if (output_hidden_states) out.push_back(x);
  for (auto& layer : encoder.layers) {
    x = layer(x, mask);
    if (output_hidden_states) out.push_back(x);
  }
  out[0] = final_layer_norm(x);
  Tensor place = eos_token_id == 2 ? argmax(ids, -1) : argmax(eq(ids, wrapped(eos_token_id)).to(kInt64), -1);
  out[1] = index(out[0], {arange(0, ids.size(0), 1, kInt64, ids.device()), place});
  return out;
}

CLIPTextModelBase::CLIPTextModelBase(CLIPTextConfig config) : ConfiguredModel(checked(std::move(config))) {}

std::string CLIPTextModelBase::current_key(const std::string& key) const {
  auto begins = [&](std::string_view prefix) { return key.compare(0, prefix.size(), prefix) == 0; };
  constexpr std::string_view kPositions = "embeddings.position_ids";
  if (key.size() >= kPositions.size() &&
      key.compare(key.size() - kPositions.size(), std::string::npos, kPositions) == 0)
    return "";
  for (const char* other : {"vision_model.", "visual_projection.", "text_projection.", "logit_scale"})
    if (begins(other)) return "";
  return begins("embeddings.") || begins("encoder.") || begins("final_layer_norm.") ? "text_model." + key : key;
}

io::Object CLIPTextModelBase::flat_config(const io::Object& config) {
  const io::Object* text = config.is_dict() ? config.find("text_config") : nullptr;
  if (!text || !text->is_dict()) return config;
  // Of these configs older files have every default of every model of transformers:
  // only what is meant for this one is kept.
  std::vector<io::Object> items;
  CLIPTextConfig names;
  for (auto& field : names.fields()) {
    const io::Object* value = text->find(field.name);
    if (!value && std::string_view(field.name) == "projection_dim") value = config.find(field.name);
    if (value) items.insert(items.end(), {io::Object(field.name), *value});
  }
  return io::Object::container(io::Object::Dict, std::move(items));
}

io::Object CLIPTextModelBase::config_of_weights(const std::vector<io::CheckpointEntry>& tensors) {
  CLIPTextConfig config = clip_text_config(tensors);
  return io::write_fields(config.fields());
}

CLIPTextConfig clip_text_config(const std::vector<io::CheckpointEntry>& tensors) {
  auto shape_of = [&](const std::string& name, size_t dims) -> Shape {
    for (auto& t : tensors) {
      if (t.name != name && t.name != "text_model." + name) continue;
      SF_CHECK(t.shape.size() == int64_t(dims), "clip_text_config: ", t.name, " must have ", dims, " dimensions, got ",
               t.shape);
      return t.shape;
    }
    fail("clip_text_config: there is no tensor text_model.", name,
         "; these are not the weights of a CLIP text encoder");
  };
  CLIPTextConfig c;
  Shape tokens = shape_of("embeddings.token_embedding.weight", 2);
  c.vocab_size = tokens[0];
  c.hidden_size = tokens[1];
  SF_CHECK(c.hidden_size == 512 || c.hidden_size == 768 || c.hidden_size == 1024 || c.hidden_size == 1280,
           "clip_text_config: the known text encoders have 512, 768, 1024 or 1280 channels, got ", c.hidden_size,
           "; give a config.json");
  c.max_position_embeddings = shape_of("embeddings.position_embedding.weight", 2)[0];
  c.intermediate_size = shape_of("encoder.layers.0.mlp.fc1.weight", 2)[0];
  c.num_hidden_layers = 0;
  for (auto& t : tensors)
    c.num_hidden_layers += t.name.ends_with(".layer_norm1.weight") && t.name.find("vision_model.") == std::string::npos;
  c.num_attention_heads = c.hidden_size / 64;
  c.hidden_act = c.hidden_size < 1024 ? "quick_gelu" : "gelu";
  c.projection_dim = c.hidden_size;
  for (auto& t : tensors)
    if (t.name == "text_projection.weight" && t.shape.size() == 2) c.projection_dim = t.shape[0];
  return c;
}

CLIPTextModel::CLIPTextModel(Config config) : CLIPTextModelBase(std::move(config)), text_model(options) {}

Tensors CLIPTextModel::forward(const Tensor& input_ids, const Tensor& attention_mask, const Tensor& position_ids,
                               bool output_hidden_states) const {
  return text_model.forward(input_ids, attention_mask, position_ids, output_hidden_states);
}

static int64_t checked_projection(const CLIPTextConfig& c) {
  SF_CHECK(c.projection_dim.value_or(0) > 0, "CLIPTextModelWithProjection: projection_dim must be above 0, got ",
           c.projection_dim.value_or(0));
  return *c.projection_dim;
}

CLIPTextModelWithProjection::CLIPTextModelWithProjection(Config config)
    : CLIPTextModelBase(std::move(config)),
      text_model(options),
      text_projection(options.hidden_size, checked_projection(options), false) {
  init_linear(text_projection, options.initializer_factor / std::sqrt(double(options.hidden_size)));
}

std::string CLIPTextModelWithProjection::current_key(const std::string& key) const {
  return key == "text_projection.weight" ? key : CLIPTextModelBase::current_key(key);
}

Tensors CLIPTextModelWithProjection::forward(const Tensor& input_ids, const Tensor& attention_mask,
                                             const Tensor& position_ids, bool output_hidden_states) const {
  Tensors out = text_model.forward(input_ids, attention_mask, position_ids, output_hidden_states);
  Tensor embeds = text_projection(out[1]);
  out[1] = out[0];
  out[0] = embeds;
  return out;
}

SF_MODEL(CLIPTextModel)
    .doc(
        "transformers' CLIPTextModel: token ids [B, N] to hidden states [B, N, hidden_size] and the pooled one [B, "
        "hidden_size].")
    .forward<&CLIPTextModel::forward>("input_ids, attention_mask=None, position_ids=None, output_hidden_states=False");
SF_MODEL(CLIPTextModelWithProjection)
    .doc(
        "transformers' CLIPTextModelWithProjection: token ids [B, N] to a vector [B, projection_dim] and hidden states "
        "[B, N, hidden_size].")
    .forward<&CLIPTextModelWithProjection::forward>(
        "input_ids, attention_mask=None, position_ids=None, output_hidden_states=False");

}  // namespace sf::models
