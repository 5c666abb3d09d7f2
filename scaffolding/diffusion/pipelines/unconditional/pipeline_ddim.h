// DDIMPipeline: pictures from noise with a UNet2DModel in few steps (Song et al. 2020, arXiv 2010.02502).
#pragma once
#include "scaffolding/diffusion/pipelines/unconditional/unconditional.h"

namespace sf::diffusion {

struct DDIMPipelineOptions : UnconditionalOptions {
  DDIMPipelineOptions() { num_inference_steps = 50; }
  double eta = 0;
  bool use_clipped_model_output = false;
  OptionFields fields();
};

struct DDIMPipeline : PipelineOf<DDIMPipeline, DDIMPipelineOptions, UnconditionalPipeline> {
  static constexpr const char* kName = "DDIMPipeline";
  void take_components() override;  // whatever sampler a folder names becomes a DDIMScheduler
  std::unique_ptr<Run> prepare(const DDIMPipelineOptions& options) const;
};

}  // namespace sf::diffusion
