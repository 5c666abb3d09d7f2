// FluxImg2ImgPipeline: a picture changed by a prompt with FLUX.1.
#pragma once
#include "scaffolding/diffusion/pipelines/flux/flux.h"

namespace sf::diffusion {

struct FluxImg2ImgOptions : FluxOptions {
  FluxImg2ImgOptions() { guidance_scale = 7; }
  Tensor image;  // [n, 3, H, W] in [-1, 1], or latents [n, C, h, w]
  double strength = 0.6;
  OptionFields fields();
};

struct FluxImg2ImgPipeline : PipelineOf<FluxImg2ImgPipeline, FluxImg2ImgOptions, FluxAdapterBase> {
  static constexpr const char* kName = "FluxImg2ImgPipeline";
  std::unique_ptr<Run> prepare(const FluxImg2ImgOptions& options) const;
};

}  // namespace sf::diffusion
