// DPM-Solver++ as stochastic differential equation, of second order, as CogVideoX has it. The caller keeps the previous
// step's prediction and timestep and gives them to the next: StepOptions::old_pred_original_sample and timestep_back.
#pragma once
#include "scaffolding/diffusion/schedulers/cogvideox_schedule.h"

namespace sf::diffusion {

class CogVideoXDPMScheduler final : public CogVideoXScheduler {
 public:
  using Config = CogVideoXConfig;
  static constexpr const char* kName = "CogVideoXDPMScheduler";
  explicit CogVideoXDPMScheduler(CogVideoXConfig config = {});
  const char* name() const override { return kName; }
  std::string_view step_parameters() const override {
    return "model_output, old_pred_original_sample, timestep, timestep_back, sample, eta, use_clipped_model_output, "
           "generator, variance_noise, return_dict";
  }
  bool returns_dict() const override { return false; }

 protected:
  StepOutput advance(const Tensor& model_output, double timestep, const Tensor& sample,
                     const StepOptions& options) override;

 private:
  template <class T>
  StepOutput advance_in(const Tensor& model_output, int64_t timestep, const Tensor& sample,
                        const StepOptions& options) const;
};

}  // namespace sf::diffusion
