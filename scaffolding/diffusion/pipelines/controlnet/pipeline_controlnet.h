// StableDiffusionControlNetPipeline: text to pictures whose edges, depths or pose a picture says (Zhang et al. 2023,
// arXiv 2302.05543).
#pragma once
#include "scaffolding/diffusion/pipelines/controlnet/control.h"
#include "scaffolding/diffusion/pipelines/stable_diffusion/stable_diffusion.h"

namespace sf::diffusion {

struct ControlNetOptions : GenerationOptions, ControlOptions {
  OptionFields fields();
};

// Height and width are the ControlNet's picture's where nothing is said.
struct StableDiffusionControlNetPipeline
    : PipelineOf<StableDiffusionControlNetPipeline, ControlNetOptions, ControlledBase<StableDiffusionBase>> {
  static constexpr const char* kName = "StableDiffusionControlNetPipeline";
  std::unique_ptr<Run> prepare(const ControlNetOptions& options) const;
};

}  // namespace sf::diffusion
