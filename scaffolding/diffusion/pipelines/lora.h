// LoRA in pipelines: the networks that may have adapters, which pipelines that share these networks share.
#pragma once
#include "scaffolding/diffusion/pipelines/pipeline.h"
#include "scaffolding/models/adapters/load_lora.h"

namespace sf::diffusion {

// The denoiser and the text encoders.
models::AdaptedModels adapted_models(DiffusionPipeline& pipeline);

struct LoraSource {
  std::string path;
  double weight = 1;
};
// Loads these, by the names of their files, and turns them on with their weights, and no others. All or none.
// RuntimeError for a file that cannot be read; ValueError for one that is no LoRA for this pipeline, or for two of one
// name.
void use_loras(DiffusionPipeline& pipeline, const std::vector<LoraSource>& loras);

}  // namespace sf::diffusion
