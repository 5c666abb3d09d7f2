// Which of the known models (models/configs) a LoRA is for.
#pragma once
#include "scaffolding/models/adapters/lora_file.h"
#include "scaffolding/models/single_file/kinds.h"

namespace sf::models {

struct LoraBase {
  const SingleFileKind* kind;
  const std::vector<AdapterStems>* stems;  // of its denoiser and its text encoders; they stay
  size_t fitting;                          // stems of the LoRA that fit it
};

// Kinds that something of the LoRA fits, the best first. The first call makes every kind's models on the meta device,
// which takes tenths of a second, and keeps their names, some megabytes. Thread-safe.
std::vector<LoraBase> lora_bases(const LoraFile& file);

}  // namespace sf::models
