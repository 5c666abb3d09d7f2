#include "scaffolding/models/adapters/save_lora.h"

#include <algorithm>
#include <cmath>

#include "scaffolding/autograd/mode.h"
#include "scaffolding/core/error.h"
#include "scaffolding/io/config.h"
#include "scaffolding/io/formats/safetensors.h"
#include "scaffolding/ops/ops.h"

namespace sf::models {

namespace {

using Fields = std::vector<io::Object>;  // key, value, key, value ...

struct Part {
  Tensor down, up;
  double scale = 1;
};

// By module.
std::map<std::string, Part> parts_of(Model& model, const std::string& adapter) {
  std::map<std::string, std::vector<const LoraLayer*>> by_module;
  for (auto& layer : model.adapters().layers(adapter)) by_module[layer.module].push_back(&layer);
  autograd::NoGrad off;
  std::map<std::string, Part> out;
  for (auto& m : nn::named_modules(model)) {
    auto found = by_module.find(m.name);
    if (found == by_module.end()) continue;
    Tensors downs, ups;
    for (auto* layer : found->second) {
      const LoraTerm ready = LoraPath::ready(*m.module, term_of(*layer), kFloat32, Device());
      if (found->second.size() == 1) {
        const bool as_it_came = !layer->mid && ready.up.size(0) == layer->up.size(0);
        out[m.name] = as_it_came ? Part{layer->down.detach(), layer->up.detach(), layer->scale}
                                 : Part{ready.down, ready.up, layer->scale};
        break;
      }
      downs.push_back(ready.down);
      ups.push_back(ready.up * ready.scale);
    }
    if (!downs.empty()) out[m.name] = {cat(downs, 0), cat(ups, 1), 1};
  }
  return out;
}

template <class T> T most_frequent(const std::map<std::string, T>& values) {
  std::map<T, int> counts;
  for (auto& [name, v] : values) ++counts[v];
  return std::max_element(counts.begin(), counts.end(), [](auto& a, auto& b) { return a.second < b.second; })->first;
}

io::Object number(double v) {
  return v == std::floor(v) && std::fabs(v) < 1e15 ? io::Object(int64_t(v)) : io::Object(v);
}

// What is not as usual. A name that another one ends with is anchored: keys are regular expressions for PEFT.
template <class T> io::Object pattern(const std::map<std::string, T>& values, T usual) {
  Fields out;
  for (auto& value : values) {
    if (value.second == usual) continue;
    const std::string& name = value.first;
    const bool is_end =
        std::any_of(values.begin(), values.end(), [&](auto& o) { return o.first.ends_with("." + name); });
    out.insert(out.end(), {io::Object(std::string_view(is_end ? "^" + name : name)), number(double(value.second))});
  }
  return io::Object::container(io::Object::Dict, std::move(out));
}

// A module's name in a config: PEFT takes ends of names, and in some releases of transformers CLIP's lack text_model.
std::string configured(const std::string& module) {
  const std::string before = "text_model.";
  return module.starts_with(before) ? module.substr(before.size()) : module;
}

io::Object config_of(const std::map<std::string, Part>& parts) {
  std::map<std::string, int64_t> ranks;
  std::map<std::string, double> alphas;
  Fields modules;
  for (auto& [module, p] : parts) {
    const std::string name = configured(module);
    ranks[name] = p.down.size(0);
    alphas[name] = p.scale * double(p.down.size(0));
    modules.emplace_back(std::string_view(name));
  }
  const int64_t rank = most_frequent(ranks);
  const double alpha = most_frequent(alphas);
  return io::Object::container(
      io::Object::Dict, {"peft_type", "LORA", "r", io::Object(rank), "lora_alpha", number(alpha), "rank_pattern",
                         pattern(ranks, rank), "alpha_pattern", pattern(alphas, alpha), "target_modules",
                         io::Object::container(io::Object::List, std::move(modules)), "use_rslora", io::Object(false),
                         "use_dora", io::Object(false), "bias", "none"});
}

void put(std::map<std::string, Tensor>& out, const std::string& before, const std::map<std::string, Part>& parts) {
  for (auto& [name, p] : parts) {
    out[before + name + ".lora_A.weight"] = p.down;
    out[before + name + ".lora_B.weight"] = p.up;
  }
}

}  // namespace

std::map<std::string, Tensor> lora_state(Model& model, const std::string& adapter) {
  std::map<std::string, Tensor> out;
  put(out, "", parts_of(model, adapter));
  return out;
}

io::Object lora_peft_config(Model& model, const std::string& adapter) { return config_of(parts_of(model, adapter)); }

void save_lora(const std::string& path, const std::string& adapter, const AdaptedModels& models) {
  std::map<std::string, Tensor> tensors;
  Fields config;
  for (auto& [component, model] : models) {
    if (!model->has_adapters() || !model->adapters().has(adapter)) continue;
    const std::map<std::string, Part> parts = parts_of(*model, adapter);
    put(tensors, component + ".", parts);
    const io::Object fields = config_of(parts);
    for (size_t i = 0; i < fields.items().size(); i += 2)
      config.insert(config.end(),
                    {io::Object(std::string_view(component + "." + fields.items()[i].text())), fields.items()[i + 1]});
  }
  SF_CHECK(!tensors.empty(), "save_lora: none of the models has an adapter '", adapter, "'");
  const io::Object said = io::Object::container(io::Object::Dict, std::move(config));
  io::save_safetensors(tensors, path, {{"format", "pt"}, {"lora_adapter_metadata", io::format_config(said)}});
}

}  // namespace sf::models
