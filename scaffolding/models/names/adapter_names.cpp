#include "scaffolding/models/names/adapter_names.h"

#include <algorithm>

namespace sf::models {

namespace {

// Prefixes of stems, and whether the module's name follows with '_' in place of '.'.
struct Prefix {
  std::string text;
  bool flat;
};

std::vector<Prefix> prefixes_of(const std::string& component) {
  const bool text = component.rfind("text_encoder", 0) == 0;
  std::vector<Prefix> out = {{component + ".", false},
                             {"base_model.model.", false},
                             {"base_model.model." + component + ".", false},
                             {"", false}};
  if (text) {
    const std::string number = component == "text_encoder" ? "1" : component.substr(component.rfind('_') + 1);
    if (number == "1") out.push_back({"lora_te_", true});
    out.push_back({"lora_te" + number + "_", true});
  } else if (component == "unet" || component == "transformer") {
    for (auto* p : {"diffusion_model.", "model.diffusion_model."}) out.push_back({p, false});
    out.push_back({"lora_unet_", true});  // kohya's scripts say so of transformers too
    if (component == "transformer") out.push_back({"lora_transformer_", true});
  } else {
    out.push_back({"lora_" + component + "_", true});
  }
  return out;
}

std::string flat(std::string name) {
  std::replace(name.begin(), name.end(), '.', '_');
  return name;
}

// "a.b.weight" is module a.b's, and "attn.in_proj_weight" attn.in_proj's; nothing else is a weight.
std::string module_of(const std::string& tensor) {
  for (std::string_view end : {".weight", "_weight"})
    if (tensor.size() > end.size() && tensor.compare(tensor.size() - end.size(), end.size(), end) == 0)
      return tensor.substr(0, tensor.size() - end.size());
  return "";
}

// The name that diffusers' first attention processors gave to what they add to a projection:
// "attn1.processor.to_q_lora" to "attn1.to_q".
std::string processor_name(const std::string& module) {
  constexpr std::pair<std::string_view, std::string_view> kNames[] = {
      {".to_q", "to_q_lora"}, {".to_k", "to_k_lora"}, {".to_v", "to_v_lora"}, {".to_out.0", "to_out_lora"}};
  for (auto& [end, name] : kNames)
    if (module.size() > end.size() && module.compare(module.size() - end.size(), end.size(), end) == 0)
      return module.substr(0, module.size() - end.size()) + ".processor." + std::string(name);
  return "";
}

// Adds a layout's stems to those of others.
void add(AdapterStems& stems, const NameTable& table, const std::string& component) {
  const std::vector<Prefix> prefixes = prefixes_of(component);
  for (auto& source : table.sources()) {
    const std::string module = module_of(source.name), processor = processor_name(module);
    if (module.empty() || source.ours.size() < 2 || source.change == NameChange::Transposed) continue;
    std::vector<AdapterTarget> targets;
    for (auto& piece : table.pieces(source)) {
      auto& tensor = table.tensors()[piece.tensor];
      targets.push_back(
          {module_of(tensor.name), piece.rows, piece.row, tensor.shape[0], piece.source_row, source.ours[0]});
    }
    if (std::any_of(targets.begin(), targets.end(), [](auto& t) { return t.module.empty(); })) continue;
    auto put = [&](const std::string& stem) {
      auto [place, fresh] = stems.try_emplace(stem, targets);
      SF_CHECK(fresh || place->second == targets, table.who(), ": an adapter's '", stem, "' would be of '",
               place->second[0].module, "' and of '", targets[0].module, "'");
    };
    for (auto& prefix : prefixes) {
      put(prefix.text + (prefix.flat ? flat(module) : module));
      if (!prefix.flat && !processor.empty()) put(prefix.text + processor);
    }
  }
}

}  // namespace

AdapterStems adapter_stems(const NameTable& table, const std::string& component) {
  AdapterStems stems;
  add(stems, table, component);
  return stems;
}

AdapterStems adapter_stems(nn::Module& model, const std::string& class_name, const std::string& component) {
  AdapterStems stems;
  std::vector<std::string> layouts = layouts_of(class_name);
  layouts.push_back("own");
  for (auto& layout : layouts) {
    try {
      add(stems, name_table(model, class_name, layout), component);
    } catch (const NotSupported&) {
      continue;  // no file of that layout can hold this model, and no adapter has its names
    }
  }
  return stems;
}

}  // namespace sf::models
