// StableDiffusionControlNetInpaintPipeline: a part of a picture made anew, after another picture.
#pragma once
#include "scaffolding/diffusion/pipelines/controlnet/control.h"
#include "scaffolding/diffusion/pipelines/stable_diffusion/pipeline_stable_diffusion_inpaint.h"

namespace sf::diffusion {

struct ControlNetInpaintOptions : InpaintOptions, ControlOptions {
  ControlNetInpaintOptions() { controlnet_conditioning_scale = {0.5}; }
  OptionFields fields();
};

struct StableDiffusionControlNetInpaintPipeline
    : PipelineOf<StableDiffusionControlNetInpaintPipeline, ControlNetInpaintOptions,
                 ControlledBase<StableDiffusionBase>> {
  static constexpr const char* kName = "StableDiffusionControlNetInpaintPipeline";
  std::unique_ptr<Run> prepare(const ControlNetInpaintOptions& options) const;
};

}  // namespace sf::diffusion
