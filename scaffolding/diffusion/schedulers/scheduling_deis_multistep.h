// DEIS: Zhang and Chen 2022, arXiv 2204.13902: exponential integrators of up to third order, whose polynomials are in
// the logarithm of the noise level.
#pragma once
#include "scaffolding/diffusion/schedulers/multistep.h"

namespace sf::diffusion {

struct DEISMultistepConfig : BetaConfig {
  int64_t solver_order = 2;
  std::string prediction_type = "epsilon";  // or sample, v_prediction, flow_prediction
  bool thresholding = false;
  double dynamic_thresholding_ratio = 0.995;
  double sample_max_value = 1;
  std::string algorithm_type = "deis";
  std::string solver_type = "logrho";
  bool lower_order_final = true;
  bool use_karras_sigmas = false;
  bool use_exponential_sigmas = false;
  bool use_beta_sigmas = false;
  bool use_flow_sigmas = false;
  double flow_shift = 1;
  std::string timestep_spacing = "linspace";
  int64_t steps_offset = 0;
  bool use_dynamic_shifting = false;  // set_timesteps takes mu, whose exponential is the flow_shift
  std::string time_shift_type = "exponential";

  Fields fields();
};

class DEISMultistepScheduler final : public MultistepScheduler {
 public:
  using Config = DEISMultistepConfig;
  static constexpr const char* kName = "DEISMultistepScheduler";
  explicit DEISMultistepScheduler(DEISMultistepConfig config = {});
  const char* name() const override { return kName; }
  Fields fields() override { return config_.fields(); }
  std::string_view timestep_parameters() const override { return "num_inference_steps, device, mu"; }

 protected:
  void make_schedule(const TimestepOptions& options, int64_t num_inference_steps) override;
  StepOutput advance(const Tensor& model_output, double timestep, const Tensor& sample,
                     const StepOptions& options) override;

 private:
  Tensor update(int64_t order, const Tensor& sample) const;
  DEISMultistepConfig config_;
};

}  // namespace sf::diffusion
