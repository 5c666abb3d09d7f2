#include <algorithm>
#include <cmath>

#include "scaffolding/io/checkpoint.h"
#include "scaffolding/io/object_entries.h"
#include "scaffolding/models/parts/config_checks.h"
#include "scaffolding/models/text_encoders/gemma3.h"

namespace sf::models {

io::Fields Gemma3TextConfig::fields() {
  return {{"vocab_size", &vocab_size},
          {"hidden_size", &hidden_size},
          {"intermediate_size", &intermediate_size},
          {"num_hidden_layers", &num_hidden_layers},
          {"num_attention_heads", &num_attention_heads},
          {"num_key_value_heads", &num_key_value_heads},
          {"head_dim", &head_dim},
          {"hidden_activation", &hidden_activation},
          {"max_position_embeddings", &max_position_embeddings},
          {"initializer_range", &initializer_range},
          {"rms_norm_eps", &rms_norm_eps},
          {"use_cache", &use_cache},
          {"pad_token_id", &pad_token_id},
          {"eos_token_id", &eos_token_id},
          {"bos_token_id", &bos_token_id},
          {"tie_word_embeddings", &tie_word_embeddings},
          {"rope_parameters", &rope_parameters},
          {"attention_bias", &attention_bias},
          {"attention_dropout", &attention_dropout},
          {"query_pre_attn_scalar", &query_pre_attn_scalar},
          {"sliding_window", &sliding_window},
          {"layer_types", &layer_types},
          {"final_logit_softcapping", &final_logit_softcapping},
          {"attn_logit_softcapping", &attn_logit_softcapping},
          {"use_bidirectional_attention", &use_bidirectional_attention}};
}

namespace {

const char* const kGemma3 = Gemma3TextModel::kName;
enum LayerType : size_t { Full, Sliding };
constexpr double kThetas[] = {1e6, 1e4};  // where a config says none
constexpr int64_t kPattern = 6;           // of so many layers the last one is full, where a config says nothing
constexpr int64_t kHalf = 2;

const io::Object* said(const io::Object& dict, const char* key) {
  const io::Object* value = dict.is_dict() ? dict.find(key) : nullptr;
  return value && !value->is(io::Object::None) ? value : nullptr;
}

std::string shown_text(const io::Object& o) {
  return o.is(io::Object::String) ? "'" + o.text() + "'" : io::Object::name(o.kind());
}

void check_gemma3_ropes(const io::Object& ropes) {
  if (ropes.is(io::Object::None)) return;
  SF_CHECK(ropes.is_dict(), kGemma3, ": rope_parameters must be a dict or absent");
  for (size_t i = 0; i + 1 < ropes.items().size(); i += 2) {
    const io::Object &key = ropes.items()[i], &rope = ropes.items()[i + 1];
    const bool known = key.is(io::Object::String) && std::any_of(kGemma3LayerTypes.begin(), kGemma3LayerTypes.end(),
                                                                 [&](auto* type) { return key.text() == type; });
    SF_CHECK(known && (rope.is_dict() || rope.is(io::Object::None)), kGemma3,
             ": rope_parameters must have a dict for 'full_attention' and one for 'sliding_attention', got ",
             shown_text(key));
    for (const char* name : {"rope_type", "type"})
      if (const io::Object* type = said(rope, name))
        SF_CHECK_AS(NotSupported,
                    type->is(io::Object::String) && (type->text() == "default" || type->text() == "linear"), kGemma3,
                    ": rope_parameters must have the ", name, " 'default' or 'linear', got ", shown_text(*type));
    if (const io::Object* part = said(rope, "partial_rotary_factor"))
      SF_CHECK_AS(NotSupported, part->as_float() == 1, kGemma3, ": partial_rotary_factor must be 1, got ",
                  part->as_float());
  }
}

bool is_linear(const io::Object& rope) {
  const io::Object* type = said(rope, "rope_type");
  if (!type) type = said(rope, "type");
  return type && type->text() == "linear";
}

}  // namespace

Gemma3Rope gemma3_rope(const Gemma3TextConfig& c, size_t type) {
  Gemma3Rope out{kThetas[type], 1};
  const io::Object* rope = said(c.rope_parameters, kGemma3LayerTypes[type]);
  if (!rope) return out;
  if (const io::Object* theta = said(*rope, "rope_theta")) out.theta = theta->as_float();
  if (is_linear(*rope)) {
    const io::Object* factor = said(*rope, "factor");
    SF_CHECK(factor, kGemma3, ": rope_parameters of the rope_type 'linear' need a factor");
    out.factor = factor->as_float();
  }
  SF_CHECK(out.theta > 0 && out.factor > 0, kGemma3, ": rope_theta and factor must be above 0, got ", out.theta,
           " and ", out.factor);
  return out;
}

std::vector<size_t> gemma3_layer_types(const Gemma3TextConfig& c) {
  std::vector<size_t> out;
  if (c.layer_types.is(io::Object::None)) {
    for (int64_t i = 1; i <= c.num_hidden_layers; ++i) out.push_back(i % kPattern ? Sliding : Full);
    return out;
  }
  SF_CHECK(c.layer_types.is_sequence() && int64_t(c.layer_types.items().size()) == c.num_hidden_layers, kGemma3,
           ": layer_types must be a list with one for each of the ", c.num_hidden_layers, " layers");
  for (auto& type : c.layer_types.items()) {
    const bool full = type.is(io::Object::String) && type.text() == kGemma3LayerTypes[Full];
    SF_CHECK_AS(NotSupported, full || (type.is(io::Object::String) && type.text() == kGemma3LayerTypes[Sliding]),
                kGemma3, ": layer_types must be 'full_attention' or 'sliding_attention', got ", shown_text(type));
    out.push_back(full ? Full : Sliding);
  }
  return out;
}

Gemma3TextConfig checked_gemma3(Gemma3TextConfig c) {
  check_sizes(kGemma3, {{"vocab_size", c.vocab_size},
                        {"hidden_size", c.hidden_size},
                        {"intermediate_size", c.intermediate_size},
                        {"num_attention_heads", c.num_attention_heads},
                        {"num_key_value_heads", c.num_key_value_heads},
                        {"head_dim", c.head_dim},
                        {"max_position_embeddings", c.max_position_embeddings},
                        {"query_pre_attn_scalar", c.query_pre_attn_scalar}});
  SF_CHECK(c.num_hidden_layers > 0 && c.num_hidden_layers <= kMostLayers, kGemma3,
           ": num_hidden_layers must be between 1 and ", kMostLayers, ", got ", c.num_hidden_layers);
  SF_CHECK(c.num_attention_heads % c.num_key_value_heads == 0, kGemma3,
           ": num_key_value_heads must divide num_attention_heads, got ", c.num_key_value_heads, " and ",
           c.num_attention_heads);
  SF_CHECK(c.num_attention_heads * c.head_dim <= kMostChannels, kGemma3,
           ": num_attention_heads * head_dim must be at most ", kMostChannels, ", got ",
           c.num_attention_heads * c.head_dim);
  SF_CHECK(c.head_dim % kHalf == 0, kGemma3, ": head_dim must be even, got ", c.head_dim);
  SF_CHECK(c.attention_dropout >= 0 && c.attention_dropout <= 1, kGemma3,
           ": attention_dropout must be between 0 and 1, got ", c.attention_dropout);
  SF_CHECK(!c.pad_token_id || (*c.pad_token_id >= 0 && *c.pad_token_id < c.vocab_size), kGemma3,
           ": pad_token_id must be below vocab_size, got ", c.pad_token_id.value_or(0), " and ", c.vocab_size);
  SF_CHECK_AS(NotSupported, c.hidden_activation == "gelu_pytorch_tanh", kGemma3,
              ": hidden_activation must be gelu_pytorch_tanh, got '", c.hidden_activation, "'");
  SF_CHECK_AS(NotSupported, !c.attn_logit_softcapping && !c.final_logit_softcapping, kGemma3,
              ": attn_logit_softcapping and final_logit_softcapping are of Gemma 2, and not supported");
  SF_CHECK_AS(NotSupported, !c.use_bidirectional_attention.value_or(false), kGemma3,
              ": use_bidirectional_attention is not supported: each token sees those before it");
  const std::vector<size_t> types = gemma3_layer_types(c);
  const bool slides = std::find(types.begin(), types.end(), size_t(Sliding)) != types.end();
  SF_CHECK(!slides || c.sliding_window.value_or(0) > 0, kGemma3,
           ": layers of sliding_attention need a sliding_window above 0, got ", c.sliding_window.value_or(0));
  check_gemma3_ropes(c.rope_parameters);
  for (size_t i = 0; i < kGemma3LayerTypes.size(); ++i) gemma3_rope(c, i);
  return c;
}

// ---- configs of files

namespace {

constexpr const char* kOfOlder[] = {"rope_theta", "rope_local_base_freq", "rope_scaling", "sliding_window_pattern",
                                    "_sliding_window_pattern"};

bool is_one(const std::string& key, std::span<const char* const> names) {
  return std::any_of(names.begin(), names.end(), [&](auto* name) { return key == name; });
}

// The text's config out of one of text and pictures, with what is said outside of it and means the whole.
io::Object text_part(const io::Object& config) {
  const io::Object* text = said(config, "text_config");
  if (!text || !text->is_dict()) return config;
  io::Object out = io::Object::container(io::Object::Dict, text->items());
  std::vector<std::string> own{"quantization_config"};
  Gemma3TextConfig names;
  for (auto& field : names.fields()) own.push_back(field.name);
  for (auto& key : own)
    if (const io::Object* value = said(config, key.c_str())) io::set_entry(out, key, *value);
  return out;
}

io::Object rope_dict(const io::Object* theta, double otherwise, const io::Object* scaling) {
  io::Object out = io::Object::container(io::Object::Dict);
  io::set_entry(out, "rope_type", "default");
  if (scaling)
    for (size_t i = 0; i + 1 < scaling->items().size(); i += 2)
      if (scaling->items()[i].is(io::Object::String))
        io::set_entry(out, scaling->items()[i].text(), scaling->items()[i + 1]);
  io::set_entry(out, "rope_theta", theta ? *theta : io::Object(otherwise));
  return out;
}

}  // namespace

io::Object Gemma3TextModel::flat_config(const io::Object& whole) {
  if (!whole.is_dict()) return whole;
  const io::Object config = text_part(whole);
  const io::Object* older[std::size(kOfOlder)];
  for (size_t i = 0; i < std::size(kOfOlder); ++i) older[i] = said(config, kOfOlder[i]);
  const auto& [theta, local, scaling, pattern, saved_pattern] = older;
  io::Object out = io::Object::container(io::Object::Dict);
  const std::vector<io::Object>& items = config.items();  // key, value, key, value ...
  for (size_t i = 0; i + 1 < items.size(); i += 2)
    if (items[i].is(io::Object::String) && !is_one(items[i].text(), kOfOlder))
      io::set_entry(out, items[i].text(), items[i + 1]);
  if ((theta || local || scaling) && !said(config, "rope_parameters")) {
    SF_CHECK(!scaling || scaling->is_dict(), kGemma3, ": rope_scaling must be a dict or absent");
    io::Object ropes = io::Object::container(io::Object::Dict);
    io::set_entry(ropes, kGemma3LayerTypes[Full], rope_dict(theta, kThetas[Full], scaling));
    io::set_entry(ropes, kGemma3LayerTypes[Sliding], rope_dict(local, kThetas[Sliding], nullptr));
    io::set_entry(out, "rope_parameters", ropes);
  }
  const io::Object* every = pattern ? pattern : saved_pattern;
  if (every && !said(config, "layer_types") && every->as_int() != kPattern) {
    const io::Object* layers = said(config, "num_hidden_layers");
    const int64_t n = layers ? layers->as_int() : Gemma3TextConfig().num_hidden_layers;
    SF_CHECK(every->as_int() > 0 && n >= 0 && n <= kMostLayers, kGemma3,
             ": sliding_window_pattern must be above 0, got ", every->as_int(), " of ", n, " layers");
    std::vector<io::Object> types;
    for (int64_t i = 1; i <= n; ++i) types.push_back(kGemma3LayerTypes[i % every->as_int() ? Sliding : Full]);
    io::set_entry(out, "layer_types", io::Object::container(io::Object::List, std::move(types)));
  }
  return out;
}

namespace {

// What the sizes of a published model do not show.
struct KnownGemma3 {
  int64_t hidden_size, sliding_window, query_pre_attn_scalar;
  double factor;  // by which positions of full layers are stretched
};
constexpr KnownGemma3 kKnown[] = {
    {640, 512, 256, 1}, {1152, 512, 256, 1}, {2560, 1024, 256, 8}, {3840, 1024, 256, 8}, {5376, 1024, 168, 8}};

// The names of what a config is told by, in transformers' files and in llama.cpp's.
struct Gemma3Tensors {
  const char *table, *layer, *query_norm, *query, *key, *gate;
};
constexpr Gemma3Tensors kLayouts[] = {
    {"embed_tokens.weight", "layers.", ".self_attn.q_norm.weight", ".self_attn.q_proj.weight",
     ".self_attn.k_proj.weight", ".mlp.gate_proj.weight"},
    {"token_embd.weight", "blk.", ".attn_q_norm.weight", ".attn_q.weight", ".attn_k.weight", ".ffn_gate.weight"}};

}  // namespace

io::Object Gemma3TextModel::config_of_weights(const std::vector<io::CheckpointEntry>& tensors) {
  const Gemma3Tensors* names = nullptr;
  std::string before;
  for (auto& t : tensors)
    for (auto& layout : kLayouts)
      if (t.name.ends_with(layout.table)) {
        names = &layout;
        before = t.name.substr(0, t.name.size() - std::string_view(layout.table).size());
      }
  SF_CHECK(names, kGemma3, ": there is no tensor embed_tokens.weight; these are not the weights of a Gemma 3");
  auto shape_of = [&](const std::string& name, int64_t dims) -> Shape {
    for (auto& t : tensors)
      if (t.name == before + name) {
        SF_CHECK(t.shape.size() == dims, kGemma3, ": ", t.name, " must have ", dims, " dimensions, got ", t.shape);
        return t.shape;
      }
    fail(kGemma3, ": there is no tensor ", before, name, "; these are not the weights of a Gemma 3");
  };
  const std::string first = names->layer + std::string("0");
  Gemma3TextConfig c;
  const Shape table = shape_of(names->table, 2);
  c.vocab_size = table[0], c.hidden_size = table[1];
  auto known =
      std::find_if(std::begin(kKnown), std::end(kKnown), [&](auto& k) { return k.hidden_size == c.hidden_size; });
  SF_CHECK(known != std::end(kKnown), kGemma3,
           ": the known ones have a hidden_size of 640, 1152, 2560, 3840 or 5376, got ", c.hidden_size,
           "; give a config");
  c.head_dim = std::max<int64_t>(1, shape_of(first + names->query_norm, 1)[0]);
  c.num_attention_heads = shape_of(first + names->query, 2)[0] / c.head_dim;
  c.num_key_value_heads = shape_of(first + names->key, 2)[0] / c.head_dim;
  c.intermediate_size = shape_of(first + names->gate, 2)[0];
  auto has_layer = [&](int64_t i) {
    const std::string name = before + names->layer + std::to_string(i) + names->query_norm;
    return std::any_of(tensors.begin(), tensors.end(), [&](auto& t) { return t.name == name; });
  };
  for (c.num_hidden_layers = 0; c.num_hidden_layers <= kMostLayers && has_layer(c.num_hidden_layers);)
    ++c.num_hidden_layers;
  c.sliding_window = known->sliding_window;
  c.query_pre_attn_scalar = known->query_pre_attn_scalar;
  if (known->factor != 1) {
    io::Object scaling = io::Object::container(io::Object::Dict), ropes = io::Object::container(io::Object::Dict);
    io::set_entry(scaling, "rope_type", "linear");
    io::set_entry(scaling, "factor", known->factor);
    io::set_entry(ropes, kGemma3LayerTypes[Full], rope_dict(nullptr, kThetas[Full], &scaling));
    io::set_entry(ropes, kGemma3LayerTypes[Sliding], rope_dict(nullptr, kThetas[Sliding], nullptr));
    c.rope_parameters = ropes;
  }
  return io::write_fields(c.fields());
}

std::string Gemma3TextModel::current_key(const std::string& key) const {
  std::string_view name(key);
  for (const std::string_view outer : {"model.", "language_model.", "model."})
    if (name.starts_with(outer)) name.remove_prefix(outer.size());
  for (const char* other : {"lm_head.", "vision_tower.", "vision_model.", "multi_modal_projector."})
    if (name.starts_with(other)) return "";
  if (name.find("rotary_emb") != name.npos) return "";
  return std::string(name);
}

}  // namespace sf::models
