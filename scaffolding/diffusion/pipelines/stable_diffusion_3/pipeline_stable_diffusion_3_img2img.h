// StableDiffusion3Img2ImgPipeline: a picture changed by a prompt with Stable Diffusion 3 and 3.5.
#pragma once
#include "scaffolding/diffusion/pipelines/stable_diffusion_3/stable_diffusion_3.h"

namespace sf::diffusion {

struct StableDiffusion3PictureOptions : StableDiffusion3Options {
  Tensor image;           // [n, 3, height, width] in [-1, 1], or latents
  double strength = 0.6;  // the share of the steps that is run
  OptionFields fields();
};

struct StableDiffusion3Img2ImgPipeline
    : PipelineOf<StableDiffusion3Img2ImgPipeline, StableDiffusion3PictureOptions, StableDiffusion3Base> {
  static constexpr const char* kName = "StableDiffusion3Img2ImgPipeline";
  std::unique_ptr<Run> prepare(const StableDiffusion3PictureOptions& options) const;
};

}  // namespace sf::diffusion
