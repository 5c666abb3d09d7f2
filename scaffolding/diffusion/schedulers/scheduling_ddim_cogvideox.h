// DDIM as CogVideoX has it.
#pragma once
#include "scaffolding/diffusion/schedulers/cogvideox_schedule.h"

namespace sf::diffusion {

class CogVideoXDDIMScheduler final : public CogVideoXScheduler {
 public:
  using Config = CogVideoXConfig;
  static constexpr const char* kName = "CogVideoXDDIMScheduler";
  explicit CogVideoXDDIMScheduler(CogVideoXConfig config = {});
  const char* name() const override { return kName; }
  // eta and what follows it are taken as diffusers takes them: without effect.
  std::string_view step_parameters() const override {
    return "model_output, timestep, sample, eta, use_clipped_model_output, generator, variance_noise, return_dict";
  }

 protected:
  StepOutput advance(const Tensor& model_output, double timestep, const Tensor& sample,
                     const StepOptions& options) override;

 private:
  template <class T> StepOutput advance_in(const Tensor& model_output, int64_t timestep, const Tensor& sample) const;
};

}  // namespace sf::diffusion
