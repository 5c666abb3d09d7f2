// Adapters into files, as PEFT and diffusers write them.
#pragma once
#include "scaffolding/models/adapters/load_lora.h"

namespace sf::models {

// An adapter of a model by PEFT's names, {"mid_block.attentions.0.proj_in.lora_A.weight": tensor}, in the dtypes it
// came in. What a file had of another kind is one A and one B: a middle factor is multiplied into A, updates of parts
// of a layer's rows lie behind each other. Alphas are in the config. ValueError for a name that is not there.
std::map<std::string, Tensor> lora_state(Model& model, const std::string& adapter);
// The fields of PEFT's LoraConfig that say its ranks and alphas.
io::Object lora_peft_config(Model& model, const std::string& adapter);

// Writes an adapter of a pipeline's models into one file, which load_lora, diffusers and PEFT read. ValueError where
// none of the models has it.
void save_lora(const std::string& path, const std::string& adapter, const AdaptedModels& models);

}  // namespace sf::models
