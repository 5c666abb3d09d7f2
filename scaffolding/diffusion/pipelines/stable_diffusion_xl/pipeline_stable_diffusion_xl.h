// StableDiffusionXLPipeline: text to pictures with SDXL.
#pragma once
#include "scaffolding/diffusion/pipelines/stable_diffusion_xl/conditioning.h"

namespace sf::diffusion {

class StableDiffusionXLPipeline : public StableDiffusionXLBase {
 public:
  static constexpr const char* kName = "StableDiffusionXLPipeline";
  using StableDiffusionXLBase::StableDiffusionXLBase;
  const char* name() const override { return kName; }
  PipelineOutput operator()(const StableDiffusionXLOptions& options) const;
};

}  // namespace sf::diffusion
