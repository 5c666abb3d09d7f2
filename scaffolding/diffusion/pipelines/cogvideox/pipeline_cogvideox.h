// CogVideoXPipeline: text to clips with CogVideoX 2B, 5B and 1.5 (Yang et al. 2024, arXiv 2408.06072).
#pragma once
#include "scaffolding/diffusion/pipelines/cogvideox/cogvideox.h"

namespace sf::diffusion {

struct CogVideoXPipeline : PipelineOf<CogVideoXPipeline, CogVideoXOptions, CogVideoXBase> {
  static constexpr const char* kName = "CogVideoXPipeline";
  std::unique_ptr<Run> prepare(const CogVideoXOptions& options) const;
};

}  // namespace sf::diffusion
