// StableDiffusionXLImg2ImgPipeline: a picture changed by a prompt with SDXL, and its refiner, which goes on where the
// base model stopped (denoising_end there, denoising_start here).
#pragma once
#include "scaffolding/diffusion/pipelines/stable_diffusion_xl/conditioning.h"

namespace sf::diffusion {

struct StableDiffusionXLImg2ImgOptions : StableDiffusionXLOptions {
  Tensor image;           // [n, 3, H, W] in [-1, 1], or latents
  double strength = 0.3;  // not looked at with denoising_start
  std::optional<double> denoising_start;
  double aesthetic_score = 6, negative_aesthetic_score = 2.5;  // of models with requires_aesthetics_score
  OptionFields fields();
};

struct StableDiffusionXLImg2ImgPipeline
    : PipelineOf<StableDiffusionXLImg2ImgPipeline, StableDiffusionXLImg2ImgOptions, StableDiffusionXLBase> {
  static constexpr const char* kName = "StableDiffusionXLImg2ImgPipeline";
  bool requires_aesthetics_score = false;  // the refiner's denoiser was told scores
  io::Fields fields() override;
  std::unique_ptr<Run> prepare(const StableDiffusionXLImg2ImgOptions& options) const;

 private:
  void start_at(Scheduler& scheduler, StepSchedule& schedule, double denoising_start) const;
};

}  // namespace sf::diffusion
