// DDPMPipeline: pictures from noise with a UNet2DModel (Ho et al. 2020, arXiv 2006.11239).
#pragma once
#include "scaffolding/diffusion/pipelines/unconditional/unconditional.h"

namespace sf::diffusion {

struct DDPMPipeline : PipelineOf<DDPMPipeline, UnconditionalOptions, UnconditionalPipeline> {
  static constexpr const char* kName = "DDPMPipeline";
  std::unique_ptr<Run> prepare(const UnconditionalOptions& options) const { return from_noise(options, 0); }
};

}  // namespace sf::diffusion
