// ZImagePipeline: text to pictures with Z-Image and Z-Image-Turbo.
#pragma once
#include "scaffolding/diffusion/pipelines/z_image/z_image.h"

namespace sf::diffusion {

struct ZImagePipeline : PipelineOf<ZImagePipeline, ZImageOptions, ZImageBase> {
  static constexpr const char* kName = "ZImagePipeline";
  std::unique_ptr<Run> prepare(const ZImageOptions& options) const;
};

}  // namespace sf::diffusion
