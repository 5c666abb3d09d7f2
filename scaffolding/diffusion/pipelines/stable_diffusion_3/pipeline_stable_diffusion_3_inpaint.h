// StableDiffusion3InpaintPipeline: a part of a picture made anew with Stable Diffusion 3 and 3.5, by denoisers with 33
// input channels, or with 16 (inpainting.h).
#pragma once
#include "scaffolding/diffusion/pipelines/stable_diffusion_3/pipeline_stable_diffusion_3_img2img.h"

namespace sf::diffusion {

struct StableDiffusion3InpaintOptions : StableDiffusion3PictureOptions {
  Tensor mask;                  // [n, 1, height, width]: 1 where the picture is made anew, 0 where it stays
  Tensor masked_image_latents;  // instead of those of the picture without the part
  OptionFields fields();
};

struct StableDiffusion3InpaintPipeline
    : PipelineOf<StableDiffusion3InpaintPipeline, StableDiffusion3InpaintOptions, StableDiffusion3Base> {
  static constexpr const char* kName = "StableDiffusion3InpaintPipeline";
  std::unique_ptr<Run> prepare(const StableDiffusion3InpaintOptions& options) const;
};

}  // namespace sf::diffusion
