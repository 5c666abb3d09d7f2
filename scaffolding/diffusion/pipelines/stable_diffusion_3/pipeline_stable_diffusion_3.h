// StableDiffusion3Pipeline: text to pictures with Stable Diffusion 3 and 3.5.
#pragma once
#include "scaffolding/diffusion/pipelines/stable_diffusion_3/stable_diffusion_3.h"

namespace sf::diffusion {

struct StableDiffusion3TextOptions : StableDiffusion3Options {
  StableDiffusion3TextOptions() { num_inference_steps = 28; }
  // Skip-layer guidance: in some of the steps the denoiser is called once more without these blocks, and the difference
  // to its answer with them is added.
  std::optional<std::vector<double>> skip_guidance_layers;
  double skip_layer_guidance_scale = 2.8;
  double skip_layer_guidance_stop = 0.2, skip_layer_guidance_start = 0.01;  // shares of the steps
  OptionFields fields();
};

struct StableDiffusion3Pipeline
    : PipelineOf<StableDiffusion3Pipeline, StableDiffusion3TextOptions, StableDiffusion3Base> {
  static constexpr const char* kName = "StableDiffusion3Pipeline";
  std::unique_ptr<Run> prepare(const StableDiffusion3TextOptions& options) const;
};

}  // namespace sf::diffusion
