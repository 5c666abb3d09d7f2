// ZImageImg2ImgPipeline: a picture changed by a prompt with Z-Image.
#pragma once
#include "scaffolding/diffusion/pipelines/z_image/z_image.h"

namespace sf::diffusion {

struct ZImageImg2ImgOptions : ZImageOptions {
  Tensor image;  // [n, 3, H, W] in [-1, 1], or latents
  double strength = 0.6;
  OptionFields fields();
};

struct ZImageImg2ImgPipeline : PipelineOf<ZImageImg2ImgPipeline, ZImageImg2ImgOptions, ZImageBase> {
  static constexpr const char* kName = "ZImageImg2ImgPipeline";
  std::unique_ptr<Run> prepare(const ZImageImg2ImgOptions& options) const;
};

}  // namespace sf::diffusion
