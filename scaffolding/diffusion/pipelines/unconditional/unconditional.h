// What pipelines without text and latents share: a network that sees pictures, and a sampler.
#pragma once
#include "scaffolding/diffusion/pipelines/pipeline.h"

namespace sf::diffusion {

struct UnconditionalOptions {
  int64_t batch_size = 1;
  int64_t num_inference_steps = 1000;
  Generators generator;
  Tensor latents;               // [B, C, H, W] of unit noise, instead of drawing
  bool output_latents = false;  // the result is as the network has it, about -1 to 1
  bool capture = true;
  bool cache_prompt = false;  // there is none
  StepCallback callback_on_step_end;
  StepProgress progress;
  std::stop_token stop;
  Ref<Scheduler> scheduler;  // of this run alone; absent: the pipeline's
  OptionFields fields();
};

class UnconditionalPipeline : public DiffusionPipeline {
 public:
  Ref<Denoiser> unet;
  Ref<Scheduler> scheduler;
  SF_COMPONENTS(unet, scheduler)
  Size size(std::optional<int64_t> height = {}, std::optional<int64_t> width = {}) const override;
  Tensor decoded(const Tensor& latents) const override { return latents; }

 protected:
  // A run from noise of the unet's sample_size. ValueError for a batch that is none, and where the config has no size.
  std::unique_ptr<Run> from_noise(const UnconditionalOptions& options, double eta) const;
};

}  // namespace sf::diffusion
