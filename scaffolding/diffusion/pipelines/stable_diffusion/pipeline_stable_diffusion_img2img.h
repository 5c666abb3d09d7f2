// StableDiffusionImg2ImgPipeline: a picture changed by a prompt (SDEdit: Meng et al. 2021, arXiv 2108.01073).
#pragma once
#include "scaffolding/diffusion/pipelines/stable_diffusion/stable_diffusion.h"

namespace sf::diffusion {

struct Img2ImgOptions : GenerationOptions {
  Tensor image;           // [n, 3, H, W] in [-1, 1] as VaeImageProcessor makes it, or latents
  double strength = 0.8;  // the share of the schedule that is run, from the picture with as much noise
  OptionFields fields();
};

// Height and width are the picture's; `latents` are not taken: noise is drawn.
struct StableDiffusionImg2ImgPipeline
    : PipelineOf<StableDiffusionImg2ImgPipeline, Img2ImgOptions, StableDiffusionBase> {
  static constexpr const char* kName = "StableDiffusionImg2ImgPipeline";
  std::unique_ptr<Run> prepare(const Img2ImgOptions& options) const;
};

}  // namespace sf::diffusion
