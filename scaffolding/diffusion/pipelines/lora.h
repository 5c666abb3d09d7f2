// LoRA in pipelines: the networks that may have adapters, which pipelines that share these networks share.
#pragma once
#include <optional>

#include "scaffolding/diffusion/pipelines/pipeline.h"
#include "scaffolding/models/adapters/load_lora.h"
#include "scaffolding/models/adapters/lora_folders.h"
#include "scaffolding/models/adapters/lora_hash.h"

namespace sf::diffusion {

// The denoiser, the text encoders and what else it calls but autoencoders.
models::AdaptedModels adapted_models(DiffusionPipeline& pipeline);

struct LoraSource {
  std::string path;  // a file, or a folder with one
  double weight = 1;
  std::optional<double> text_encoders = {};  // how strongly there, instead of weight
  std::string name = {};                     // of the adapter; "": models::lora_name(path)
};
// Loads these and turns them on with their weights, and no others. All or none. RuntimeError for a file that cannot be
// read; ValueError for one that is no LoRA for this pipeline, for two of one name or a name that an adapter has
// already, and for a weight that is NaN or infinite.
void use_loras(DiffusionPipeline& pipeline, const std::vector<LoraSource>& loras);

}  // namespace sf::diffusion
