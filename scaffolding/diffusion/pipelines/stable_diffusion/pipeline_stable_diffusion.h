// StableDiffusionPipeline: text to pictures with Stable Diffusion 1 and 2 (Rombach et al. 2022, arXiv 2112.10752).
#pragma once
#include "scaffolding/diffusion/pipelines/stable_diffusion/stable_diffusion.h"

namespace sf::diffusion {

struct StableDiffusionPipeline : PipelineOf<StableDiffusionPipeline, GenerationOptions, StableDiffusionBase> {
  static constexpr const char* kName = "StableDiffusionPipeline";
  std::unique_ptr<Run> prepare(const GenerationOptions& options) const;
};

}  // namespace sf::diffusion
