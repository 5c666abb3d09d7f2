#include "scaffolding/models/names/adapter_names.h"

#include <algorithm>

#include "scaffolding/core/default_device.h"
#include "scaffolding/models/model.h"

namespace sf::models {

namespace {

std::string flat(std::string name) {
  std::replace(name.begin(), name.end(), '.', '_');
  return name;
}

bool ends_with(const std::string& name, std::string_view end) {
  return name.size() > end.size() && name.compare(name.size() - end.size(), end.size(), end) == 0;
}

// "a.b.weight" is module a.b's, and "attn.in_proj_weight" attn.in_proj's; nothing else is a weight.
std::string module_of(const std::string& tensor) {
  for (std::string_view end : {".weight", "_weight"})
    if (ends_with(tensor, end)) return tensor.substr(0, tensor.size() - end.size());
  return "";
}

// The names that diffusers' first releases gave to what they add to a projection: "attn1.processor.to_q_lora" to
// "attn1.to_q", and in text encoders "self_attn.to_q_lora" to "self_attn.q_proj".
std::string processor_name(const std::string& module) {
  constexpr std::pair<std::string_view, std::string_view> kNames[] = {
      {".to_q", ".processor.to_q_lora"},
      {".to_k", ".processor.to_k_lora"},
      {".to_v", ".processor.to_v_lora"},
      {".to_out.0", ".processor.to_out_lora"},
      {".self_attn.q_proj", ".self_attn.to_q_lora"},
      {".self_attn.k_proj", ".self_attn.to_k_lora"},
      {".self_attn.v_proj", ".self_attn.to_v_lora"},
      {".self_attn.out_proj", ".self_attn.to_out_lora"}};
  for (auto& [end, name] : kNames)
    if (ends_with(module, end)) return module.substr(0, module.size() - end.size()) + std::string(name);
  return "";
}

}  // namespace

std::vector<AdapterStems::Prefix> AdapterStems::prefixes_of(const std::string& component) {
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

AdapterStems::AdapterStems(std::string component, std::string class_name)
    : component_(std::move(component)), class_name_(std::move(class_name)), prefixes_(prefixes_of(component_)) {}

// The last of weights_ has this name.
void AdapterStems::put(Names& names, std::string name, const NameTable& table) {
  const size_t last = weights_.size() - 1;
  auto [place, fresh] = names.try_emplace(std::move(name), last);
  if (fresh || weights_[place->second].targets == weights_[last].targets) return;
  auto prefix = std::find_if(prefixes_.begin(), prefixes_.end(), [&](auto& p) { return p.flat == (&names == &flat_); });
  fail(table.who(), ": an adapter's '", prefix->text, place->first, "' would be of '",
       weights_[place->second].targets[0].module, "' and of '", weights_[last].targets[0].module, "'");
}

void AdapterStems::add(const NameTable& table) {
  weights_.reserve(weights_.size() + table.sources().size());
  dotted_.reserve(dotted_.size() + table.sources().size());
  flat_.reserve(flat_.size() + table.sources().size());
  for (auto& source : table.sources()) {
    const std::string module = module_of(source.name);
    if (module.empty() || source.ours.size() < 2 || source.change == NameChange::Transposed) continue;
    AdaptedWeight weight{{}, source.ours, source.shape};
    for (auto& piece : table.pieces(source)) {
      auto& tensor = table.tensors()[piece.tensor];
      weight.targets.push_back(
          {module_of(tensor.name), piece.rows, piece.row, tensor.shape[0], piece.source_row, source.ours[0]});
    }
    if (std::any_of(weight.targets.begin(), weight.targets.end(), [](auto& t) { return t.module.empty(); })) continue;
    weights_.push_back(std::move(weight));
    put(dotted_, module, table);
    put(flat_, flat(module), table);
    if (std::string processor = processor_name(module); !processor.empty()) put(dotted_, std::move(processor), table);
  }
}

const AdaptedWeight* AdapterStems::find(std::string_view stem) const {
  for (auto& prefix : prefixes_) {
    if (!stem.starts_with(prefix.text)) continue;
    auto& names = prefix.flat ? flat_ : dotted_;
    if (auto found = names.find(stem.substr(prefix.text.size())); found != names.end()) return &weights_[found->second];
  }
  return nullptr;
}

AdapterStems adapter_stems(nn::Module& model, const std::string& class_name, const std::string& component) {
  AdapterStems stems(component, class_name);
  std::vector<std::string> layouts = layouts_of(class_name);
  layouts.push_back("own");
  for (auto& layout : layouts) {
    try {
      stems.add(name_table(model, class_name, layout));
    } catch (const NotSupported&) {
      continue;  // no file of that layout can hold this model, and no adapter has its names
    }
  }
  return stems;
}

AdapterStems adapter_stems(const std::string& class_name, const io::Object& config, const std::string& component) {
  DefaultDevice nowhere{Device(Device::Meta)};
  return adapter_stems(*make_model(class_name, config), class_name, component);
}

}  // namespace sf::models
