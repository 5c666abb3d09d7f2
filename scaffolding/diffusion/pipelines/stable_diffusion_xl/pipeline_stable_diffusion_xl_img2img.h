// StableDiffusionXLImg2ImgPipeline: a picture changed by a prompt with SDXL, and its refiner, which goes on where the
// base model stopped (denoising_end there, denoising_start here).
#pragma once
#include "scaffolding/diffusion/pipelines/stable_diffusion_xl/from_picture.h"

namespace sf::diffusion {

using StableDiffusionXLImg2ImgOptions = StableDiffusionXLPictureOptions;

struct StableDiffusionXLImg2ImgPipeline
    : PipelineOf<StableDiffusionXLImg2ImgPipeline, StableDiffusionXLImg2ImgOptions, StableDiffusionXLPictureBase> {
  static constexpr const char* kName = "StableDiffusionXLImg2ImgPipeline";
  std::unique_ptr<Run> prepare(const StableDiffusionXLImg2ImgOptions& options) const;
};

}  // namespace sf::diffusion
