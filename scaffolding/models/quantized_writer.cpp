#include "scaffolding/models/quantized_writer.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <typeinfo>
#include <vector>

#include "scaffolding/core/error.h"
#include "scaffolding/nn/format.h"
#include "scaffolding/nn/half_weights.h"
#include "scaffolding/nn/quantized.h"
#include "scaffolding/nn/quantized_conv.h"
#include "scaffolding/nn/quantized_gguf.h"
#include "scaffolding/nn/quantized_rows.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/quantize/codes.h"

namespace sf::models {

namespace {

using Entries = std::vector<io::Object>;
io::Object dict(Entries entries) { return io::Object::container(io::Object::Dict, std::move(entries)); }
io::Object text(const std::string& s) { return io::Object(std::string_view(s)); }
io::Object list_of(const std::vector<std::string>& names) {
  if (names.empty()) return {};
  Entries all;
  for (auto& name : names) all.push_back(text(name));
  return io::Object::container(io::Object::List, std::move(all));
}

// "nf4", "fp4" or "int8" of a layer of bitsandbytes' formats, "float8" of torchao's, "" of others.
std::string kind_of(const nn::Module& m) {
  if (dynamic_cast<const nn::LinearNF4*>(&m)) return "nf4";
  if (dynamic_cast<const nn::LinearFP4*>(&m)) return "fp4";
  if (auto* l = dynamic_cast<const nn::LinearFP8*>(&m))
    return l->scale.ndim() == 2 && !l->dynamic && l->weight.dtype() == kFloat8E4M3 ? "float8" : "";
  auto* int8 = dynamic_cast<const nn::LinearInt8*>(&m);
  return int8 && !int8->dynamic && int8->unit == kInt8Unit ? "int8" : "";
}

Tensor bytes_of(std::string_view s) {
  Tensor t = empty({int64_t(s.size())}, kUInt8);
  std::memcpy(t.data_ptr(), s.data(), s.size());
  return t;
}
Tensor table_of(const float* values, int64_t n) {
  Tensor t = empty({n}, kFloat32);
  std::memcpy(t.data_ptr(), values, size_t(n) * sizeof(float));
  return t;
}

// A layer's magnitudes under the names that bitsandbytes gives them, and what its JSON text says.
template <class L>
void put_four_bits(const L& layer, const std::string& name, const std::string& kind, const float* table, DType dtype,
                   std::map<std::string, Tensor>& state) {
  const std::string weight = name + ".weight";
  auto moved = [&](const char* from, const std::string& to) {
    if (auto node = state.extract(name + from)) node.key() = to, state.insert(std::move(node));
  };
  std::string facts = "{\"quant_type\": \"" + kind + "\", \"blocksize\": 64, \"dtype\": \"" +
                      std::string(sf::name(dtype)) + "\", \"shape\": [" + std::to_string(layer.out_features) + ", " +
                      std::to_string(layer.in_features) + "]";
  moved(".absmax", weight + ".absmax");
  state.emplace(weight + ".quant_map", table_of(table, 16));
  if (layer.nested_absmax) {
    facts += ", \"nested_blocksize\": 256, \"nested_dtype\": \"float32\", \"nested_offset\": " +
             nn::text(double(layer.offset.item()));
    moved(".nested_absmax", weight + ".nested_absmax");
    state.emplace(weight + ".nested_quant_map", table_of(kDynamic.v, 256));
    state.erase(name + ".offset");
  }
  state.emplace(weight + ".quant_state.bitsandbytes__" + kind, bytes_of(facts + "}"));
}

io::Object bitsandbytes_config(const std::string& kind, bool nested, DType dtype,
                               const std::vector<std::string>& wide) {
  const bool four = kind != "int8";
  Entries all{"_load_in_4bit", four, "_load_in_8bit", !four};
  if (four)
    all.insert(all.end(), {"bnb_4bit_compute_dtype", sf::name(dtype), "bnb_4bit_quant_storage", "uint8",
                           "bnb_4bit_quant_type", text(kind), "bnb_4bit_use_double_quant", nested});
  all.insert(all.end(), {"llm_int8_enable_fp32_cpu_offload", false, "llm_int8_has_fp16_weight", false,
                         "llm_int8_skip_modules", list_of(wide), "llm_int8_threshold", 6.0, "load_in_4bit", four,
                         "load_in_8bit", !four, "quant_method", "bitsandbytes"});
  return dict(std::move(all));
}

// As torchao's flatten_tensor_state_dict writes a Float8Tensor, and what its config of such weights says.
QuantizedEntries put_float8(const std::map<std::string, nn::Module*>& layers, const std::vector<std::string>& wide,
                            DType dtype, std::map<std::string, Tensor>& state) {
  QuantizedEntries out;
  std::string names;
  for (auto& [name, t] : state) {
    if (name.ends_with(".scale") && layers.count(name.substr(0, name.size() - 6))) continue;
    names += (names.empty() ? "[\"" : ", \"") + name + "\"";
    out.metadata[name] = "{\"_type\": \"Tensor\"}";
  }
  out.metadata["tensor_names"] = names + "]";
  for (auto& [name, layer] : layers) {
    const int64_t in = static_cast<nn::LinearFP8*>(layer)->in_features;
    for (auto [from, to] : {std::pair{".weight", "._weight_qdata"}, std::pair{".scale", "._weight_scale"}}) {
      auto node = state.extract(name + from);
      node.key() = name + to;
      state.insert(std::move(node));
    }
    out.metadata[name + ".weight"] =
        "{\"_type\": \"Float8Tensor\", \"_data\": {\"block_size\": [1, " + std::to_string(in) +
        "], \"mm_config\": null, \"act_quant_kwargs\": null, \"kernel_preference\": {\"_type\": "
        "\"KernelPreference\", \"_data\": \"AUTO\"}, \"dtype\": {\"_type\": \"torch.dtype\", \"_data\": \"" +
        std::string(sf::name(dtype)) + "\"}}, \"_tensor_data_names\": [\"qdata\", \"scale\"]}";
  }
  const io::Object by_row = dict({"_data", dict({"dim", int64_t(-1)}), "_type", "PerRow", "_version", int64_t(1)}),
                   e4m3 = dict({"_data", "float8_e4m3fn", "_type", "torch.dtype"}),
                   config =
                       dict({"_data", dict({"granularity", by_row, "set_inductor_config", true, "weight_dtype", e4m3}),
                             "_type", "Float8WeightOnlyConfig", "_version", int64_t(2)});
  out.config = dict(
      {"modules_to_not_convert", list_of(wide), "quant_method", "torchao", "quant_type", dict({"default", config})});
  return out;
}

// What this library's own config says of a layer.
io::Object facts_of(const nn::Module& m) {
  if (auto* l = dynamic_cast<const nn::LinearInt8*>(&m))
    return dict({"dynamic", l->dynamic, "format", "int8", "unit", l->unit});
  if (auto* c = dynamic_cast<const nn::Conv2dInt8*>(&m)) return dict({"dynamic", c->dynamic, "format", "int8"});
  if (auto* l = dynamic_cast<const nn::LinearFP8*>(&m)) return dict({"dynamic", l->dynamic});
  const std::string format = dynamic_cast<const nn::StoredWeight&>(m).weight_format();
  auto* l = dynamic_cast<const nn::LinearGGUF*>(&m);
  return l && l->dynamic ? dict({"dynamic", true, "format", text(format)}) : dict({"format", text(format)});
}

}  // namespace

std::optional<QuantizedEntries> put_quantized_entries(Model& model, std::map<std::string, Tensor>& state) {
  std::map<std::string, nn::Module*> layers;
  std::vector<std::string> wide;  // linear layers as they are
  std::string first;
  std::set<std::string> kinds;
  bool nested = false;
  for (auto& m : nn::named_modules(model)) {
    if (typeid(*m.module) == typeid(nn::Linear)) wide.push_back(m.name);
    // Those of 16 bits (nn/half_weights.h) are tensors as any other.
    if (!dynamic_cast<nn::StoredWeight*>(m.module) || nn::is_half(*m.module)) continue;
    SF_CHECK_AS(NotSupported, !dynamic_cast<nn::EmbeddingGGUF*>(m.module), "save_model: '", m.name,
                "' is a table in blocks, which no folder's format has");
    if (layers.empty()) first = kind_of(*m.module);
    layers.emplace(m.name, m.module);
    kinds.insert(kind_of(*m.module));
    if (auto* l = dynamic_cast<nn::LinearNF4*>(m.module)) nested |= l->compress_statistics;
    if (auto* l = dynamic_cast<nn::LinearFP4*>(m.module)) nested |= l->compress_statistics;
  }
  if (layers.empty()) return {};
  if (kinds.size() > 1 && (kinds.count("nf4") || kinds.count("fp4"))) {
    std::string all;
    for (auto& kind : kinds) all += (all.empty() ? "" : " and ") + (kind.empty() ? "others" : kind);
    fail("save_model: layers in ", all, " have no common file format");
  }
  if (kinds.size() > 1 || first.empty()) {
    Entries facts;
    for (auto& [name, layer] : layers) facts.insert(facts.end(), {text(name), facts_of(*layer)});
    return QuantizedEntries{dict({"layers", dict(std::move(facts)), "quant_method", "scaffolding"}), {}};
  }
  const DType dtype = model.dtype();
  if (first == "float8") return put_float8(layers, wide, dtype, state);
  for (auto& [name, layer] : layers)
    if (first == "nf4") put_four_bits(static_cast<nn::LinearNF4&>(*layer), name, first, kNf4.v, dtype, state);
    else if (first == "fp4") put_four_bits(static_cast<nn::LinearFP4&>(*layer), name, first, kFp4.v, dtype, state);
    else state.emplace(name + ".weight_format", zeros({}, kUInt8));  // row by row
  return QuantizedEntries{bitsandbytes_config(first, nested, dtype, wide), {}};
}

}  // namespace sf::models
