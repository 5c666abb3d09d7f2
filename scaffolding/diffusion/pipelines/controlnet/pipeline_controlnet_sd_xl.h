// StableDiffusionXLControlNetPipeline: text to pictures with SDXL, after another picture.
#pragma once
#include "scaffolding/diffusion/pipelines/controlnet/control.h"
#include "scaffolding/diffusion/pipelines/stable_diffusion_xl/conditioning.h"

namespace sf::diffusion {

struct StableDiffusionXLControlNetOptions : StableDiffusionXLOptions, ControlOptions {
  OptionFields fields();
};

// Height and width are the ControlNet's picture's where nothing is said.
struct StableDiffusionXLControlNetPipeline
    : PipelineOf<StableDiffusionXLControlNetPipeline, StableDiffusionXLControlNetOptions,
                 ControlledBase<StableDiffusionXLBase>> {
  static constexpr const char* kName = "StableDiffusionXLControlNetPipeline";
  std::unique_ptr<Run> prepare(const StableDiffusionXLControlNetOptions& options) const;
};

}  // namespace sf::diffusion
