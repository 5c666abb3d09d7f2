// Trajectory consistency distillation: Zheng et al. 2024, arXiv 2402.19159: few steps, each along the trajectory past
// the next timestep, and back to it with fresh noise.
#pragma once
#include "scaffolding/diffusion/schedulers/consistency_schedule.h"

namespace sf::diffusion {

class TCDScheduler final : public ConsistencyScheduler {
 public:
  static constexpr const char* kName = "TCDScheduler";
  explicit TCDScheduler(ConsistencyConfig config = {});
  const char* name() const override { return kName; }
  // eta is the paper's gamma: 0 adds no noise.
  std::string_view step_parameters() const override {
    return "model_output, timestep, sample, eta, generator, return_dict";
  }

 protected:
  // pred_original_sample is diffusers' `pred_noised_sample`.
  StepOutput advance(const Tensor& model_output, double timestep, const Tensor& sample,
                     const StepOptions& options) override;
  bool takes_every_timestep() const override { return true; }
};

}  // namespace sf::diffusion
