// StableDiffusionXLPipeline: text to pictures with SDXL.
#pragma once
#include "scaffolding/diffusion/pipelines/stable_diffusion_xl/conditioning.h"

namespace sf::diffusion {

struct StableDiffusionXLPipeline
    : PipelineOf<StableDiffusionXLPipeline, StableDiffusionXLOptions, StableDiffusionXLBase> {
  static constexpr const char* kName = "StableDiffusionXLPipeline";
  std::unique_ptr<Run> prepare(const StableDiffusionXLOptions& options) const;
};

}  // namespace sf::diffusion
