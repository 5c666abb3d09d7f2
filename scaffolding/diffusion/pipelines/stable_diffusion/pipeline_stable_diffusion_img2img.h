// StableDiffusionImg2ImgPipeline: a picture changed by a prompt (SDEdit: Meng et al. 2021, arXiv 2108.01073).
#pragma once
#include "scaffolding/diffusion/pipelines/pipeline.h"

namespace sf::diffusion {

struct Img2ImgOptions : GenerationOptions {
  Tensor image;           // [n, 3, H, W] in [-1, 1] as VaeImageProcessor makes it, or latents
  double strength = 0.8;  // the share of the schedule that is run, from the picture with as much noise
};

// Height and width are the picture's; `latents` are not taken: noise is drawn.
class StableDiffusionImg2ImgPipeline : public StableDiffusionBase {
 public:
  static constexpr const char* kName = "StableDiffusionImg2ImgPipeline";
  using StableDiffusionBase::StableDiffusionBase;
  const char* name() const override { return kName; }
  PipelineOutput operator()(const Img2ImgOptions& options) const;
};

}  // namespace sf::diffusion
