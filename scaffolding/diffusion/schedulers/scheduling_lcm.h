// Latent consistency models: Luo et al. 2023, arXiv 2310.04378: few steps, each a whole prediction with fresh noise.
#pragma once
#include "scaffolding/diffusion/schedulers/consistency_schedule.h"

namespace sf::diffusion {

class LCMScheduler final : public ConsistencyScheduler {
 public:
  static constexpr const char* kName = "LCMScheduler";
  explicit LCMScheduler(ConsistencyConfig config = {});
  const char* name() const override { return kName; }
  std::string_view step_parameters() const override { return "model_output, timestep, sample, generator, return_dict"; }

 protected:
  // pred_original_sample is diffusers' `denoised`.
  StepOutput advance(const Tensor& model_output, double timestep, const Tensor& sample,
                     const StepOptions& options) override;
};

}  // namespace sf::diffusion
