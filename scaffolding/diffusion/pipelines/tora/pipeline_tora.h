// ToraPipeline: text to clips in which things follow trajectories (Zhang et al. 2024, arXiv 2407.21705). Without any it
// is CogVideoXPipeline.
#pragma once
#include "scaffolding/diffusion/pipelines/tora/tora.h"

namespace sf::diffusion {

struct ToraOptions : CogVideoXOptions {
  ToraSteering steering;
  OptionFields fields() { return steering.fields() + CogVideoXOptions::fields(); }
};

struct ToraPipeline : PipelineOf<ToraPipeline, ToraOptions, ToraBase> {
  static constexpr const char* kName = "ToraPipeline";
  std::unique_ptr<Run> prepare(const ToraOptions& options) const;
};

}  // namespace sf::diffusion
