// StableDiffusionXLControlNetImg2ImgPipeline: a picture changed by a prompt with SDXL, after another picture.
#pragma once
#include "scaffolding/diffusion/pipelines/controlnet/control.h"
#include "scaffolding/diffusion/pipelines/stable_diffusion_xl/from_picture.h"

namespace sf::diffusion {

struct StableDiffusionXLControlNetImg2ImgOptions : StableDiffusionXLPictureOptions, ControlOptions {
  StableDiffusionXLControlNetImg2ImgOptions() { strength = 0.8, controlnet_conditioning_scale = {0.8}; }
  OptionFields fields();
};

struct StableDiffusionXLControlNetImg2ImgPipeline
    : PipelineOf<StableDiffusionXLControlNetImg2ImgPipeline, StableDiffusionXLControlNetImg2ImgOptions,
                 ControlledBase<StableDiffusionXLPictureBase>> {
  static constexpr const char* kName = "StableDiffusionXLControlNetImg2ImgPipeline";
  std::unique_ptr<Run> prepare(const StableDiffusionXLControlNetImg2ImgOptions& options) const;
};

}  // namespace sf::diffusion
