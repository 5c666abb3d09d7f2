// Euler's method on the noise levels: Karras et al. 2022, arXiv 2206.00364, algorithm 2, with diffusers' schedules.
#pragma once
#include "scaffolding/diffusion/schedulers/scheduler.h"

namespace sf::diffusion {

struct EulerDiscreteConfig : BetaConfig {
  std::string prediction_type = "epsilon";
  std::string interpolation_type = "linear";  // of the noise levels between timesteps; or log_linear
  bool use_karras_sigmas = false;
  bool use_exponential_sigmas = false;
  bool use_beta_sigmas = false;
  std::optional<double> sigma_min, sigma_max;  // ends of the three curves; the schedule's own where absent
  std::string timestep_spacing = "linspace";
  std::string timestep_type = "discrete";  // continuous: the model is called with 0.25 log(sigma) where it predicts v
  int64_t steps_offset = 0;
  bool rescale_betas_zero_snr = false;
  std::string final_sigmas_type = "zero";  // or sigma_min

  Fields fields();
};

class EulerDiscreteScheduler final : public SigmaScheduler {
 public:
  using Config = EulerDiscreteConfig;
  static constexpr const char* kName = "EulerDiscreteScheduler";
  explicit EulerDiscreteScheduler(EulerDiscreteConfig config = {});
  const char* name() const override { return kName; }
  Fields fields() override { return config_.fields(); }
  double init_noise_sigma() const override { return initial_sigma(config_.timestep_spacing); }
  std::string_view timestep_parameters() const override { return "num_inference_steps, device, timesteps, sigmas"; }
  std::string_view step_parameters() const override {
    return "model_output, timestep, sample, s_churn, s_tmin, s_tmax, s_noise, generator, return_dict";
  }
  Tensor scale_model_input(const Tensor& sample, double timestep) override { return scaled_input(sample, timestep); }
  // Of the timesteps themselves; diffusers looks up their place in the schedule instead, which runs the other way.
  Tensor get_velocity(const Tensor& sample, const Tensor& noise, const Tensor& timesteps) override {
    return velocity(sample, noise, timesteps);
  }

 protected:
  void make_schedule(const TimestepOptions& options, int64_t num_inference_steps) override;
  StepOutput advance(const Tensor& model_output, double timestep, const Tensor& sample,
                     const StepOptions& options) override;
  bool needs_set_timesteps() const override { return false; }

 private:
  bool continuous() const { return config_.timestep_type == "continuous" && config_.prediction_type == "v_prediction"; }
  EulerDiscreteConfig config_;
};

}  // namespace sf::diffusion
