// StableDiffusionInpaintPipeline: a part of a picture made anew, by denoisers with 9 input channels, or with 4
// (inpainting.h).
#pragma once
#include "scaffolding/diffusion/pipelines/stable_diffusion/stable_diffusion.h"

namespace sf::diffusion {

struct InpaintOptions : GenerationOptions {
  Tensor image;                 // [n, 3, height, width] in [-1, 1], or latents
  Tensor mask;                  // [n, 1, height, width]: 1 where the picture is made anew, 0 where it stays
  Tensor masked_image_latents;  // instead of those of the picture without the part
  double strength = 1;
  OptionFields fields();
};

struct StableDiffusionInpaintPipeline
    : PipelineOf<StableDiffusionInpaintPipeline, InpaintOptions, StableDiffusionBase> {
  static constexpr const char* kName = "StableDiffusionInpaintPipeline";
  std::unique_ptr<Run> prepare(const InpaintOptions& options) const;
};

}  // namespace sf::diffusion
