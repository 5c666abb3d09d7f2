// StableDiffusionXLInpaintPipeline: a part of a picture made anew with SDXL, by denoisers with 9 input channels, or
// with 4 (inpainting.h).
#pragma once
#include "scaffolding/diffusion/pipelines/stable_diffusion_xl/from_picture.h"

namespace sf::diffusion {

struct StableDiffusionXLInpaintOptions : StableDiffusionXLPictureOptions {
  StableDiffusionXLInpaintOptions() { guidance_scale = 7.5, strength = 0.9999; }
  Tensor mask;                  // [n, 1, height, width]: 1 where the picture is made anew, 0 where it stays
  Tensor masked_image_latents;  // instead of those of the picture without the part
  OptionFields fields();
};

struct StableDiffusionXLInpaintPipeline
    : PipelineOf<StableDiffusionXLInpaintPipeline, StableDiffusionXLInpaintOptions, StableDiffusionXLPictureBase> {
  static constexpr const char* kName = "StableDiffusionXLInpaintPipeline";
  std::unique_ptr<Run> prepare(const StableDiffusionXLInpaintOptions& options) const;
};

}  // namespace sf::diffusion
