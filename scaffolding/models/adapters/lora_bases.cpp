#include "scaffolding/models/adapters/lora_bases.h"

#include <algorithm>

namespace sf::models {

namespace {

struct Known {
  const SingleFileKind* kind;
  std::vector<AdapterStems> stems;
};

const std::vector<Known>& known() {
  static const std::vector<Known> all = [] {
    std::vector<Known> out;
    for (auto& kind : single_file_kinds()) {
      auto& stems = out.emplace_back(Known{&kind, {}}).stems;
      for (auto& part : kind.parts)
        if (part.name == "unet" || part.name == "transformer" || part.name.starts_with("text_encoder"))
          stems.push_back(adapter_stems(part.class_name, part.config, part.name));
    }
    return out;
  }();
  return all;
}

}  // namespace

std::vector<LoraBase> lora_bases(const LoraFile& file) {
  std::vector<LoraBase> out;
  for (auto& [kind, stems] : known()) {
    std::vector<const AdapterStems*> components;
    for (auto& s : stems) components.push_back(&s);
    if (const size_t n = file.fitting(components)) out.push_back({kind, &stems, n});
  }
  std::stable_sort(out.begin(), out.end(), [](auto& a, auto& b) { return a.fitting > b.fitting; });
  return out;
}

}  // namespace sf::models
