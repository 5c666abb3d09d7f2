// A LoRA file into the models of a pipeline.
#pragma once
#include "scaffolding/models/adapters/adapters.h"

namespace sf::models {

using AdaptedModels = std::vector<std::pair<std::string, Model*>>;  // with the pipeline's names for them

struct LoadLoraOptions {
  bool strict = true;  // keys that fit nothing are an error
  bool swap = false;   // takes the place of the adapter of that name, on as strongly as it was
};
// Adds it under this name to every model that it has layers for, to all of them or to none; it is not on afterwards,
// unless it was swapped for one that was. ValueError and NotSupported as LoraFile::match and Adapters::add say.
LoraReport load_lora(const LoraFile& file, const std::string& name, const AdaptedModels& models,
                     const LoadLoraOptions& options = {});

}  // namespace sf::models
