// FluxFillPipeline: a part of a picture made anew, or what is around it, with FLUX.1 Fill, whose denoiser sees the mask
// and what is left of the picture.
#pragma once
#include "scaffolding/diffusion/pipelines/flux/flux.h"

namespace sf::diffusion {

struct FluxFillOptions : FluxOptions {
  FluxFillOptions();
  Tensor image;  // [n, 3, height, width] in [-1, 1]
  Tensor mask;   // [n, 1, height, width]: 1 where the picture is made anew, 0 where it stays
  double strength = 1;
  OptionFields fields();
};

struct FluxFillPipeline : PipelineOf<FluxFillPipeline, FluxFillOptions, FluxBase> {
  static constexpr const char* kName = "FluxFillPipeline";
  std::unique_ptr<Run> prepare(const FluxFillOptions& options) const;

 private:
  // What the denoiser sees of picture and mask [B, tokens, 4 C + 4 scale^2].
  Tensor seen(const FluxRun& run, const FluxFillOptions& o, DType dtype) const;
};

}  // namespace sf::diffusion
