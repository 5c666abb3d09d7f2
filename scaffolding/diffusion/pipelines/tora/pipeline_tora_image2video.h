// ToraImageToVideoPipeline: clips that begin with a picture, whose things follow trajectories.
#pragma once
#include "scaffolding/diffusion/pipelines/tora/tora.h"

namespace sf::diffusion {

struct ToraImageToVideoOptions : CogVideoXOptions {
  Tensor image;  // [n, 3, H, W] in [-1, 1], of the clip's size: one for all, or one for each sample
  ToraSteering steering;
  OptionFields fields();
};

struct ToraImageToVideoPipeline : PipelineOf<ToraImageToVideoPipeline, ToraImageToVideoOptions, ToraBase> {
  static constexpr const char* kName = "ToraImageToVideoPipeline";
  std::unique_ptr<Run> prepare(const ToraImageToVideoOptions& options) const;
};

}  // namespace sf::diffusion
