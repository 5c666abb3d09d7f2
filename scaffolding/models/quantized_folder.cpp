#include "scaffolding/models/quantized_folder.h"

#include <cmath>
#include <optional>
#include <typeinfo>
#include <vector>

#include "scaffolding/core/error.h"
#include "scaffolding/io/config.h"
#include "scaffolding/nn/conv.h"
#include "scaffolding/nn/quantize.h"
#include "scaffolding/nn/quantized.h"
#include "scaffolding/nn/quantized_conv.h"
#include "scaffolding/nn/quantized_rows.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/quantize/codes.h"
#include "scaffolding/ops/quantize/gguf_format.h"
#include "scaffolding/ops/reduce/reduce.h"
#include "scaffolding/ops/view/view.h"

namespace sf::models {

namespace {

constexpr const char* kWho = "load_model";
constexpr int64_t kBlock = 64, kNestedBlockNumbers = 256, kMostText = 1 << 16;

// ---- A file's tensors by the model's names

// What a layer's tensors are called after its name; longer ones first where one ends with another.
constexpr const char* kParts[] = {".weight.absmax",
                                  ".weight.quant_map",
                                  ".weight.nested_absmax",
                                  ".weight.nested_quant_map",
                                  ".weight.quant_state.bitsandbytes__nf4",
                                  ".weight.quant_state.bitsandbytes__fp4",
                                  ".weight._data",
                                  ".weight._scale",
                                  ".weight._shift",
                                  ".weight._data._data",
                                  "._weight_qdata",
                                  "._weight_scale",
                                  "._weight_zero_point",
                                  "._weight_act_quant_scale",
                                  "._weight_act_quant_zero_point",
                                  "._weight_act_pre_scale",
                                  ".weight_format",
                                  ".SCB",
                                  ".scale",
                                  ".input_scale",
                                  ".output_scale"};

// Names of older files become those of today for a layer's weight; its other tensors go with it.
std::string key_of(const Model& model, const std::string& name) {
  for (const std::string part : kParts)
    if (name.size() > part.size() && name.ends_with(part)) {
      std::string key = model.current_key(name.substr(0, name.size() - part.size()) + ".weight");
      if (!key.ends_with(".weight")) break;
      return key.substr(0, key.size() - 7) + part;
    }
  return model.current_key(name);
}

struct Source {
  Model& model;
  const io::Checkpoint& file;
  const io::Object& how;
  DType dtype;
  const std::string &where, &path;
  std::map<std::string, std::string> names;  // by keys
  std::map<std::string, nn::Module*> layers;
  QuantizedState out;

  bool has(const std::string& key) const { return names.count(key); }
  Tensor get(const std::string& key) {
    auto name = names.find(key);
    SF_CHECK(name != names.end(), kWho, ": ", path, ": a quantised layer lacks '", key, "'");
    out.used.insert(name->second);
    return file.get(name->second);
  }
  Tensor get(const std::string& key, std::initializer_list<DType> dtypes, const Shape& shape) {
    Tensor t = get(key);
    bool fits = t.shape() == shape;
    std::string wanted;
    bool of_dtype = false;
    for (DType d : dtypes) {
      of_dtype |= t.dtype() == d;
      wanted += (wanted.empty() ? "" : " or ") + std::string(name(d));
    }
    SF_CHECK(fits && of_dtype, kWho, ": ", path, ": ", key, " must be ", wanted, " ", shape, ", got ", t.dtype(), " ",
             t.shape());
    return t;
  }
  // Magnitudes of rows or of all, in float32.
  Tensor scales(const std::string& key, const Tensor& t) {
    SF_CHECK(t.dtype() == kFloat32 || t.dtype() == kBFloat16 || t.dtype() == kFloat16, kWho, ": ", path, ": ", key,
             " must be floating, got ", t.dtype());
    const Tensor s = contiguous(to_dtype(t, kFloat32));
    for (int64_t i = 0; i < s.numel(); ++i) {
      const float v = s.data<float>()[i];
      SF_CHECK(std::isfinite(v) && v >= 0, kWho, ": ", path, ": ", key, " must be magnitudes, got ", v, " at ", i);
    }
    return s;
  }
  // The keys that end so, without that end.
  std::vector<std::string> with(std::string_view end) const {
    std::vector<std::string> found;
    for (auto& [key, name] : names)
      if (key.ends_with(end)) found.push_back(key.substr(0, key.size() - end.size()));
    return found;
  }
  nn::Module& layer(const std::string& name) const {
    auto found = layers.find(name);
    SF_CHECK(found != layers.end(), kWho, ": ", path, ": the weights of '", name,
             "' are quantised, but the model has no Linear of that name");
    return *found->second;
  }
  nn::Linear& linear(const std::string& name) const {
    nn::Module& m = layer(name);
    SF_CHECK(typeid(m) == typeid(nn::Linear), kWho, ": ", path, ": the weights of '", name,
             "' are quantised, but the model has no Linear of that name");
    return static_cast<nn::Linear&>(m);
  }
  void take(const std::string& name, nn::Module& made) {
    for (auto& b : nn::named_buffers(made))
      if (b.persistent) out.tensors.emplace(name + "." + b.name, b.tensor);
  }
};

const io::Object* field(const io::Object& dict, const char* key) {
  auto* found = dict.is_dict() ? dict.find(key) : nullptr;
  return found && !found->is(io::Object::None) ? found : nullptr;
}
bool is_true(const io::Object* o) { return o && o->is(io::Object::Bool) && o->as_bool(); }
std::string shown(const io::Object* o) {
  if (!o) return "none";
  if (o->is(io::Object::String)) return "'" + o->text() + "'";
  if (o->is(io::Object::Int)) return std::to_string(o->as_int());
  if (o->is(io::Object::Bool)) return o->as_bool() ? "true" : "false";
  return io::Object::name(o->kind());
}

// ---- bitsandbytes

void same_table(Source& s, const std::string& key, const float* table, int64_t n) {
  const Tensor t = contiguous(s.get(key, {kFloat32}, {n}));
  for (int64_t i = 0; i < n; ++i)
    SF_CHECK(std::fabs(t.data<float>()[i] - table[i]) <= 1e-6f, kWho, ": ", s.path, ": ", key,
             " is another table than bitsandbytes', which is the only one that is computed with");
}

// The mean of nested magnitudes; nothing where they are not nested. Of the layer's JSON text, which is checked.
std::optional<float> nested_offset(Source& s, const std::string& name, const std::string& kind, int64_t out,
                                   int64_t in) {
  const std::string key = name + ".weight.quant_state.bitsandbytes__" + kind, where = s.path + ": " + key;
  const Tensor text = s.get(key);
  SF_CHECK(text.dtype() == kUInt8 && text.ndim() == 1 && text.numel() <= kMostText, kWho, ": ", where,
           " must be bytes of a JSON text, got ", text.dtype(), " ", text.shape());
  const Tensor bytes = contiguous(text);
  io::Object facts;
  try {
    facts = io::parse_config({static_cast<const char*>(bytes.data_ptr()), size_t(bytes.numel())}, where);
  } catch (const ValueError& e) {
    fail(kWho, ": ", where, " is no JSON object: ", e.what());
  }
  auto* type = facts.find("quant_type");
  SF_CHECK(type && type->is(io::Object::String) && type->text() == kind, kWho, ": ", where, ": quant_type must be '",
           kind, "', got ", shown(type));
  auto* block = facts.find("blocksize");
  SF_CHECK(block && block->is(io::Object::Int) && block->as_int() == kBlock, kWho, ": ", where,
           ": blocksize must be 64, got ", shown(block));
  auto* shape = facts.find("shape");
  auto size_is = [&](size_t i, int64_t n) {
    const io::Object& o = shape->items()[i];
    return o.is(io::Object::Int) && o.as_int() == n;
  };
  SF_CHECK(shape && shape->is_sequence() && shape->items().size() == 2 && size_is(0, out) && size_is(1, in), kWho, ": ",
           where, ": shape must be ", Shape{out, in}, ", as the model's layer has it");
  auto *nested = facts.find("nested_blocksize"), *offset = facts.find("nested_offset");
  if (!nested && !offset) return {};
  SF_CHECK(nested && nested->is(io::Object::Int) && nested->as_int() == kNestedBlockNumbers && offset &&
               (offset->is(io::Object::Float) || offset->is(io::Object::Int)) && std::isfinite(offset->as_float()),
           kWho, ": ", where, ": nested_blocksize must be 256 and nested_offset a number, got ", shown(nested), " and ",
           shown(offset));
  return float(offset->as_float());
}

template <class L> void put_four_bits(Source& s, const std::string& name, const std::string& kind, const float* table) {
  nn::Linear& l = s.linear(name);
  const int64_t out = l.out_features, in = l.in_features, blocks = (out * in + kBlock - 1) / kBlock;
  const auto offset = nested_offset(s, name, kind, out, in);
  same_table(s, name + ".weight.quant_map", table, 16);
  auto made = std::make_shared<L>(in, out, false, bool(offset), nn::TensorOptions{Device(Device::Meta), s.dtype});
  made->bias = l.bias;
  made->weight = nn::Buffer(s.get(name + ".weight", {kUInt8}, {(out * in + 1) / 2, 1}));
  if (offset) {
    made->absmax = nn::Buffer(s.get(name + ".weight.absmax", {kUInt8}, {blocks}));
    same_table(s, name + ".weight.nested_quant_map", kDynamic.v, 256);
    const std::string key = name + ".weight.nested_absmax";
    const Shape size{(blocks + kNestedBlockNumbers - 1) / kNestedBlockNumbers};
    made->nested_absmax = nn::Buffer(s.scales(key, s.get(key, {kFloat32}, size)));
    made->offset = nn::Buffer(full({}, double(*offset), kFloat32, Device(Device::CPU)));
  } else {
    const std::string key = name + ".weight.absmax";
    made->absmax = nn::Buffer(s.scales(key, s.get(key, {kFloat32}, {blocks})));
  }
  s.take(name, *nn::put_stored_layer(l, std::move(made), s.dtype));
}

void put_int8_conv(Source& s, const std::string& name, const nn::Conv2d& conv, bool dynamic) {
  SF_CHECK(conv.groups == 1, kWho, ": ", s.path, ": '", name, "' is in int8, which convolutions of groups are not");
  auto made = std::make_shared<nn::Conv2dInt8>(conv, dynamic);
  const int64_t out = conv.out_channels;
  made->codes =
      nn::Buffer(s.get(name + ".weight", {kInt8}, {out, conv.kernel_size[0], conv.kernel_size[1], conv.in_channels}));
  made->SCB = nn::Buffer(s.scales(name + ".SCB", s.get(name + ".SCB", {kFloat32}, {out})));
  s.take(name, *nn::put_stored_layer(s.layer(name), std::move(made), s.dtype));
}

void put_int8(Source& s, const std::string& name, bool dynamic, double unit) {
  if (nn::Module& m = s.layer(name); typeid(m) == typeid(nn::Conv2d))
    return put_int8_conv(s, name, static_cast<const nn::Conv2d&>(m), dynamic);
  nn::Linear& l = s.linear(name);
  const int64_t out = l.out_features, in = l.in_features;
  auto made =
      std::make_shared<nn::LinearInt8>(in, out, false, dynamic, unit, nn::TensorOptions{Device(Device::Meta), s.dtype});
  made->bias = l.bias;
  made->weight = nn::Buffer(s.get(name + ".weight", {kInt8}, {out, in}));
  made->SCB = nn::Buffer(s.scales(name + ".SCB", s.get(name + ".SCB", {kFloat32}, {out})));
  if (const std::string format = name + ".weight_format"; s.has(format)) {
    const Tensor layout = s.get(format);
    SF_CHECK_AS(NotSupported, layout.numel() == 1 && is_integral(layout.dtype()) && layout.item() == 0, kWho, ": ",
                s.path, ": ", format, ": only weights row by row (0) are read");
  }
  s.take(name, *nn::put_stored_layer(l, std::move(made), s.dtype));
}

void read_bitsandbytes(Source& s) {
  auto either = [&](const char* key, const char* older) {
    const io::Object* found = field(s.how, key);
    return is_true(found ? found : field(s.how, older));
  };
  const bool eight = either("load_in_8bit", "_load_in_8bit"), four = either("load_in_4bit", "_load_in_4bit");
  SF_CHECK(eight != four, kWho, ": ", s.where, ": one of load_in_4bit and load_in_8bit must be true, got ",
           four ? "true" : "false", " for both");
  if (eight) {
    SF_CHECK_AS(NotSupported, !is_true(field(s.how, "llm_int8_has_fp16_weight")), kWho, ": ", s.where,
                ": llm_int8_has_fp16_weight: weights in 16 bits are no quantised ones");
    for (auto& name : s.with(".SCB")) put_int8(s, name, false, kInt8Unit);
    return;
  }
  const io::Object* type = field(s.how, "bnb_4bit_quant_type");
  const std::string kind = type && type->is(io::Object::String) ? type->text() : "";
  SF_CHECK_AS(NotSupported, kind == "nf4" || kind == "fp4", kWho, ": ", s.where,
              ": bnb_4bit_quant_type must be nf4 or fp4, got ", shown(type));
  const io::Object* storage = field(s.how, "bnb_4bit_quant_storage");
  SF_CHECK_AS(NotSupported, !storage || (storage->is(io::Object::String) && storage->text() == "uint8"), kWho, ": ",
              s.where, ": bnb_4bit_quant_storage must be uint8, got ", shown(storage));
  const std::string state = ".weight.quant_state.bitsandbytes__", other = kind == "nf4" ? "fp4" : "nf4";
  SF_CHECK(s.with(state + other).empty(), kWho, ": ", s.where, ": bnb_4bit_quant_type is '", kind,
           "', and layers of the file are ", other);
  for (auto& name : s.with(state + kind))
    if (kind == "nf4") put_four_bits<nn::LinearNF4>(s, name, kind, kNf4.v);
    else put_four_bits<nn::LinearFP4>(s, name, kind, kFp4.v);
}

// ---- torchao and quanto: int8 or float8 times a scale

void put_scaled(Source& s, const std::string& name, const std::string& codes, const std::string& scale, bool float8,
                bool dynamic) {
  nn::Linear& l = s.linear(name);
  const int64_t out = l.out_features, in = l.in_features;
  const Tensor weight =
      contiguous(float8 ? s.get(codes, {kFloat8E4M3, kFloat8E5M2}, {out, in}) : s.get(codes, {kInt8}, {out, in}));
  const Tensor by = s.scales(scale, s.get(scale));
  SF_CHECK(by.numel() == 1 || by.shape() == Shape({out}) || by.shape() == Shape({out, 1}), kWho, ": ", s.path, ": ",
           scale, " must be one scale or one for each of ", out, " rows, got ", by.shape());
  nn::Module* made = nn::put_scaled(l, weight, by, s.dtype, dynamic);
  SF_CHECK(made, kWho, ": ", s.path, ": '", name, "' is quantised twice");
  s.take(name, *made);
}

void read_torchao(Source& s) {
  SF_CHECK_AS(
      NotSupported, std::string_view(s.file.kind()) != "torch", kWho, ": ", s.path,
      ": torchao's layers are read from safetensors; save with safe_serialization=True (torchao 0.16 or later)");
  const io::Object* type = field(s.how, "quant_type");
  std::string kind = type && type->is(io::Object::String) ? type->text() : "";
  const io::Object* facts = nullptr;
  if (const io::Object* all = type && type->is_dict() ? field(*type, "default") : nullptr) {
    SF_CHECK_AS(NotSupported, type->items().size() == 2, kWho, ": ", s.where,
                ": quant_type has configs for single layers; only one for all is read");
    if (auto* named = field(*all, "_type"); named && named->is(io::Object::String)) kind = named->text();
    facts = field(*all, "_data");
  }
  const bool dynamic = kind == "Int8DynamicActivationInt8WeightConfig" || kind == "int8dq" ||
                       kind == "int8_dynamic_activation_int8_weight",
             int8 = dynamic || kind == "Int8WeightOnlyConfig" || kind == "int8wo" || kind == "int8_weight_only",
             float8 = kind == "Float8WeightOnlyConfig" || kind.starts_with("float8wo") || kind == "float8_weight_only";
  SF_CHECK_AS(NotSupported, int8 || float8, kWho, ": ", s.where, ": quant_type must be Int8WeightOnlyConfig, ",
              "Int8DynamicActivationInt8WeightConfig or Float8WeightOnlyConfig, got ",
              kind.empty() ? shown(type) : "'" + kind + "'", "; quantise the full model instead");
  if (dynamic && facts)
    if (auto* mapping = field(*facts, "act_mapping_type"))
      if (auto* named = field(*mapping, "_data"))
        SF_CHECK_AS(NotSupported, named->is(io::Object::String) && named->text() == "SYMMETRIC", kWho, ": ", s.where,
                    ": act_mapping_type must be SYMMETRIC, got ", shown(named));
  for (auto& name : s.with("._weight_qdata")) {
    for (const char* part : {"act_quant_scale", "act_quant_zero_point", "act_pre_scale"})
      SF_CHECK_AS(NotSupported, !s.has(name + "._weight_" + part), kWho, ": ", s.path, ": '", name, "' has ", part,
                  ": activations of fixed scales are not computed");
    if (const std::string zero = name + "._weight_zero_point"; s.has(zero)) {
      const Tensor points = s.get(zero);
      SF_CHECK_AS(NotSupported, points.numel() == 0 || amax(abs(to_dtype(points, kFloat32))).item() == 0, kWho, ": ",
                  s.path, ": ", zero, ": codes about a point other than 0 are not computed with");
    }
    put_scaled(s, name, name + "._weight_qdata", name + "._weight_scale", float8, dynamic);
  }
}

void read_quanto(Source& s) {
  SF_CHECK_AS(NotSupported, std::string_view(s.file.kind()) != "torch", kWho, ": ", s.path,
              ": quanto's layers are read from safetensors; save with safe_serialization=True");
  const io::Object *named = field(s.how, "weights_dtype"), *type = named ? named : field(s.how, "weights"),
                   *activations = field(s.how, "activations");
  const std::string kind = type && type->is(io::Object::String) ? type->text() : "";
  SF_CHECK_AS(NotSupported, kind == "int8" || kind == "float8", kWho, ": ", s.where,
              ": weights_dtype must be int8 or float8, got ", shown(type),
              "; quantise the full model by QuantoConfig instead");
  SF_CHECK_AS(NotSupported, !activations, kWho, ": ", s.where, ": activations must be none, got ", shown(activations));
  for (auto& name : s.with(".weight._data")) {
    put_scaled(s, name, name + ".weight._data", name + ".weight._scale", kind == "float8", false);
    for (const char* part : {".input_scale", ".output_scale"})  // of activations, which stay as they are
      if (s.has(name + part)) s.get(name + part);
  }
}

// ---- this library's own

void put_blocks(Source& s, const std::string& name, const std::string& format, bool dynamic) {
  nn::Module& m = s.layer(name);
  const GgufFormat& f = gguf_blocks(kWho, format);
  const auto* conv = typeid(m) == typeid(nn::Conv2d) ? static_cast<const nn::Conv2d*>(&m) : nullptr;
  const int64_t rows = conv ? 1 : s.linear(name).out_features,
                row = conv ? conv->weight.numel() : s.linear(name).in_features;
  SF_CHECK(row > 0 && row % f.block == 0, kWho, ": ", s.where, ": '", name, "': rows of ", row,
           " numbers are no whole blocks of ", format);
  const Tensor bytes = contiguous(s.get(name + ".weight", {kUInt8}, {rows, row / f.block * f.bytes}));
  nn::Module* made = nn::put_gguf(m, format, bytes, s.dtype, dynamic);
  SF_CHECK(made, kWho, ": ", s.path, ": '", name, "' takes no blocks");
  s.take(name, *made);
}

void put_float8(Source& s, const std::string& name, bool dynamic) {
  put_scaled(s, name, name + ".weight", name + ".scale", true, dynamic);
}

void read_own(Source& s) {
  const io::Object* layers = field(s.how, "layers");
  std::string formats = "int8";
  for (auto& f : gguf_formats())
    if (f.blocks) formats += " or " + std::string(f.name);
  auto refuse = [&] {
    fail(kWho, ": ", s.where,
         ": quantization_config.layers must be {name: {\"dynamic\": bool}} or {name: {\"format\": ", formats,
         ", with or without \"dynamic\"}}");
  };
  if (!layers || !layers->is_dict()) return refuse();
  auto& items = layers->items();
  for (size_t i = 0; i + 1 < items.size(); i += 2) {
    const io::Object &name = items[i], &facts = items[i + 1];
    if (!name.is(io::Object::String) || !facts.is_dict()) return refuse();
    const io::Object *format = field(facts, "format"), *dynamic = field(facts, "dynamic"), *unit = field(facts, "unit");
    if ((dynamic && !dynamic->is(io::Object::Bool)) || (format && !format->is(io::Object::String))) return refuse();
    if (!format) {
      if (!dynamic) return refuse();
      put_float8(s, name.text(), dynamic->as_bool());
    } else if (format->text() == "int8") {
      const bool number = unit && (unit->is(io::Object::Int) || unit->is(io::Object::Float));
      const double by = number ? unit->as_float() : kInt8Unit;
      if ((unit && !number) || (by != 1 && by != kInt8Unit)) return refuse();
      put_int8(s, name.text(), is_true(dynamic), by);
    } else {
      const GgufFormat* f = find_gguf_format(format->text());
      if (!f || !f->blocks || f->name != format->text()) return refuse();
      put_blocks(s, name.text(), format->text(), is_true(dynamic));
    }
  }
}

}  // namespace

QuantizedState put_quantized_layers(Model& model, const io::Checkpoint& file, const io::Object& how, DType dtype,
                                    const std::string& where, const std::string& path) {
  Source s{model, file, how, dtype, where, path, {}, {}, {}};
  const io::Object* method = field(how, "quant_method");
  const std::string named = method && method->is(io::Object::String) ? method->text() : "";
  for (auto& name : file.names())
    if (std::string key = key_of(model, name); !key.empty()) s.names.emplace(std::move(key), name);
  for (auto& m : nn::named_modules(model))
    if (typeid(*m.module) == typeid(nn::Linear) || typeid(*m.module) == typeid(nn::Conv2d))
      s.layers.emplace(m.name, m.module);
  if (named == "bitsandbytes") read_bitsandbytes(s);
  else if (named == "torchao") read_torchao(s);
  else if (named == "quanto") read_quanto(s);
  else if (named == "scaffolding") read_own(s);
  else
    fail<NotSupported>(kWho, ": ", where, ": quant_method must be bitsandbytes, torchao, quanto or scaffolding, got ",
                       shown(method),
                       named == "gguf" ? "; a GGUF file is read by from_single_file" : "; load the full model instead");
  return std::move(s.out);
}

}  // namespace sf::models
