// NewLora: a LoRA that does not exist yet. Which layers get one, how wide it is and how its numbers begin: fields of
// PEFT's LoraConfig, by their names.
#pragma once
#include "scaffolding/core/generator.h"
#include "scaffolding/models/adapters/lora_file.h"
#include "scaffolding/models/model.h"

namespace sf::models {

struct NewLora {
  // A: as a linear layer's weight begins, or normal with a deviation of 1 / r; B: zeros, so that the model stays as it
  // was. Random: both as linear layers' weights, for tests.
  enum class Init : uint8_t { Default, Gaussian, Random };

  int64_t r = 8;
  double lora_alpha = 8;  // the side product's factor is lora_alpha / r, and by r's square root with use_rslora
  // Names of modules, or their ends behind a dot ("to_q", "ff.net.2"); "all-linear" alone: every linear layer.
  std::vector<std::string> target_modules;
  std::string target_pattern;  // instead: a regular expression of whole names
  std::vector<std::string> exclude_modules;
  double lora_dropout = 0;  // of the side path's input, while the layer trains
  Init init_lora_weights = Init::Default;
  bool use_rslora = false;
  // Of names, their ends or regular expressions of these: other ranks and alphas.
  std::map<std::string, int64_t> rank_pattern;
  std::map<std::string, double> alpha_pattern;
};

// Its layers in the model's order: parameters that require gradients, in float32 on the model's device. With a CPU
// generator (absent: the default one) their numbers are PEFT's for the same seed. ValueError for ranks, alphas and
// dropouts that make no sense, names that no module has, and modules that are neither linear layers nor 2-D
// convolutions of one group.
std::vector<LoraLayer> new_lora_layers(Model& model, const NewLora& config, const Generator& generator = {});

}  // namespace sf::models
