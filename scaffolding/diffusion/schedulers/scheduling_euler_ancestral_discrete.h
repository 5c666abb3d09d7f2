// Euler's method with fresh noise in every step (k-diffusion's sample_euler_ancestral).
#pragma once
#include "scaffolding/diffusion/schedulers/scheduler.h"

namespace sf::diffusion {

struct EulerAncestralDiscreteConfig : BetaConfig {
  std::string prediction_type = "epsilon";
  std::string timestep_spacing = "linspace";
  int64_t steps_offset = 0;
  bool rescale_betas_zero_snr = false;

  Fields fields();
};

class EulerAncestralDiscreteScheduler final : public SigmaScheduler {
 public:
  using Config = EulerAncestralDiscreteConfig;
  static constexpr const char* kName = "EulerAncestralDiscreteScheduler";
  explicit EulerAncestralDiscreteScheduler(EulerAncestralDiscreteConfig config = {});
  const char* name() const override { return kName; }
  Fields fields() override { return config_.fields(); }
  double init_noise_sigma() const override { return initial_sigma(config_.timestep_spacing); }
  std::string_view step_parameters() const override { return "model_output, timestep, sample, generator, return_dict"; }
  Tensor scale_model_input(const Tensor& sample, double timestep) override { return scaled_input(sample, timestep); }

 protected:
  void make_schedule(const TimestepOptions& options, int64_t num_inference_steps) override;
  StepOutput advance(const Tensor& model_output, double timestep, const Tensor& sample,
                     const StepOptions& options) override;
  bool needs_set_timesteps() const override { return false; }

 private:
  EulerAncestralDiscreteConfig config_;
};

}  // namespace sf::diffusion
