// StableDiffusionPipeline: text to pictures with Stable Diffusion 1 and 2 (Rombach et al. 2022, arXiv 2112.10752).
#pragma once
#include "scaffolding/diffusion/pipelines/pipeline.h"

namespace sf::diffusion {

class StableDiffusionPipeline : public StableDiffusionBase {
 public:
  static constexpr const char* kName = "StableDiffusionPipeline";
  using StableDiffusionBase::StableDiffusionBase;
  const char* name() const override { return kName; }
  // ValueError for options that contradict each other or do not fit the components; Stopped.
  PipelineOutput operator()(const GenerationOptions& options) const;
};

}  // namespace sf::diffusion
