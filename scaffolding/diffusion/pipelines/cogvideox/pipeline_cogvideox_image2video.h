// CogVideoXImageToVideoPipeline: clips that begin with a picture, with CogVideoX 5B-I2V and 1.5-5B-I2V.
#pragma once
#include "scaffolding/diffusion/pipelines/cogvideox/cogvideox.h"

namespace sf::diffusion {

struct CogVideoXImageToVideoOptions : CogVideoXOptions {
  Tensor image;  // [n, 3, H, W] in [-1, 1], of the clip's size: one for all, or one for each sample
  OptionFields fields();
};

struct CogVideoXImageToVideoPipeline
    : PipelineOf<CogVideoXImageToVideoPipeline, CogVideoXImageToVideoOptions, CogVideoXBase> {
  static constexpr const char* kName = "CogVideoXImageToVideoPipeline";
  std::unique_ptr<Run> prepare(const CogVideoXImageToVideoOptions& options) const;
};

}  // namespace sf::diffusion
