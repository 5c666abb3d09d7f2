// DPM-Solver and DPM-Solver++: Lu et al. 2022, arXiv 2206.00927 and 2211.01095; multistep, of first to third order, as
// ordinary or stochastic differential equation.
#pragma once
#include "scaffolding/diffusion/schedulers/multistep.h"

namespace sf::diffusion {

struct DPMSolverMultistepConfig : BetaConfig {
  int64_t solver_order = 2;
  std::string prediction_type = "epsilon";  // or sample, v_prediction, flow_prediction
  bool thresholding = false;
  double dynamic_thresholding_ratio = 0.995;
  double sample_max_value = 1;
  std::string algorithm_type = "dpmsolver++";  // or dpmsolver, sde-dpmsolver, sde-dpmsolver++
  std::string solver_type = "midpoint";        // or heun: of the second order
  bool lower_order_final = true;               // the last steps of fewer than 15 have a lower order
  bool euler_at_final = false;                 // the last step has order 1
  bool use_karras_sigmas = false;
  bool use_exponential_sigmas = false;
  bool use_beta_sigmas = false;
  bool use_lu_lambdas = false;   // equal steps of the logarithm of signal to noise
  bool use_flow_sigmas = false;  // noise levels of flow matching: sample = (1 - sigma) signal + sigma noise
  double flow_shift = 1;
  std::string final_sigmas_type = "zero";  // or sigma_min
  double lambda_min_clipped = -std::numeric_limits<double>::infinity();
  // learned, learned_range: the model's output has more than three channels. Those of DDPM's configs change nothing.
  std::optional<std::string> variance_type;
  std::string timestep_spacing = "linspace";
  int64_t steps_offset = 0;
  bool rescale_betas_zero_snr = false;
  bool use_dynamic_shifting = false;  // set_timesteps takes mu, whose exponential is the flow_shift
  std::string time_shift_type = "exponential";

  Fields fields();
};

class DPMSolverMultistepScheduler final : public MultistepScheduler {
 public:
  using Config = DPMSolverMultistepConfig;
  static constexpr const char* kName = "DPMSolverMultistepScheduler";
  explicit DPMSolverMultistepScheduler(DPMSolverMultistepConfig config = {});
  const char* name() const override { return kName; }
  Fields fields() override { return config_.fields(); }
  std::string_view timestep_parameters() const override { return "num_inference_steps, device, mu, timesteps"; }
  std::string_view step_parameters() const override {
    return "model_output, timestep, sample, generator, variance_noise, return_dict";
  }

 protected:
  void make_schedule(const TimestepOptions& options, int64_t num_inference_steps) override;
  StepOutput advance(const Tensor& model_output, double timestep, const Tensor& sample,
                     const StepOptions& options) override;
  bool learns_variance() const override { return config_.variance_type.value_or("").starts_with("learned"); }

 private:
  bool predicts_original() const { return config_.algorithm_type.ends_with("++"); }
  bool stochastic() const { return config_.algorithm_type.starts_with("sde-"); }

  DPMSolverMultistepConfig config_;
};

}  // namespace sf::diffusion
