// StableDiffusionControlNetImg2ImgPipeline: a picture changed by a prompt, after another picture.
#pragma once
#include "scaffolding/diffusion/pipelines/controlnet/control.h"
#include "scaffolding/diffusion/pipelines/stable_diffusion/pipeline_stable_diffusion_img2img.h"

namespace sf::diffusion {

struct ControlNetImg2ImgOptions : Img2ImgOptions, ControlOptions {
  ControlNetImg2ImgOptions() { controlnet_conditioning_scale = {0.8}; }
  OptionFields fields();
};

struct StableDiffusionControlNetImg2ImgPipeline
    : PipelineOf<StableDiffusionControlNetImg2ImgPipeline, ControlNetImg2ImgOptions,
                 ControlledBase<StableDiffusionBase>> {
  static constexpr const char* kName = "StableDiffusionControlNetImg2ImgPipeline";
  std::unique_ptr<Run> prepare(const ControlNetImg2ImgOptions& options) const;
};

}  // namespace sf::diffusion
