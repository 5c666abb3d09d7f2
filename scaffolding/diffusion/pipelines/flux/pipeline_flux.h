// FluxPipeline: text to pictures with FLUX.1 dev and schnell.
#pragma once
#include "scaffolding/diffusion/pipelines/flux/flux.h"

namespace sf::diffusion {

struct FluxPipeline : PipelineOf<FluxPipeline, FluxOptions, FluxAdapterBase> {
  static constexpr const char* kName = "FluxPipeline";
  std::unique_ptr<Run> prepare(const FluxOptions& options) const;
};

}  // namespace sf::diffusion
