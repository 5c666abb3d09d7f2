// Euler's method for flow matching (Lipman et al. 2022, arXiv 2210.02747; Esser et al. 2024, arXiv 2403.03206): the
// model predicts noise minus signal, and sample = (1 - sigma) signal + sigma noise.
#pragma once
#include "scaffolding/diffusion/schedulers/scheduler.h"

namespace sf::diffusion {

struct FlowMatchEulerDiscreteConfig {
  int64_t num_train_timesteps = 1000;
  double shift = 1;
  bool use_dynamic_shifting = false;  // by set_timesteps' mu, which pipelines compute from the picture's size
  std::optional<double> base_shift = 0.5, max_shift = 1.15;
  int64_t base_image_seq_len = 256, max_image_seq_len = 4096;
  bool invert_sigmas = false;
  std::optional<double> shift_terminal;  // the last noise level of a run
  bool use_karras_sigmas = false;
  bool use_exponential_sigmas = false;
  bool use_beta_sigmas = false;
  std::string time_shift_type = "exponential";  // or linear: what mu means
  bool stochastic_sampling = false;             // fresh noise in every step

  Fields fields();
};

class FlowMatchEulerDiscreteScheduler final : public SigmaScheduler {
 public:
  using Config = FlowMatchEulerDiscreteConfig;
  static constexpr const char* kName = "FlowMatchEulerDiscreteScheduler";
  explicit FlowMatchEulerDiscreteScheduler(FlowMatchEulerDiscreteConfig config = {});
  const char* name() const override { return kName; }
  Fields fields() override { return config_.fields(); }
  std::string_view timestep_parameters() const override { return "num_inference_steps, device, sigmas, mu, timesteps"; }
  std::string_view step_parameters() const override {
    return "model_output, timestep, sample, s_churn, s_tmin, s_tmax, s_noise, generator, per_token_timesteps, "
           "return_dict";
  }
  // diffusers' scale_noise: sigma * noise + (1 - sigma) * original_samples.
  Tensor add_noise(const Tensor& original_samples, const Tensor& noise, const Tensor& timesteps) override;
  double shift() const { return shift_; }
  void set_shift(double shift);  // of runs to come

 protected:
  void make_schedule(const TimestepOptions& options, int64_t num_inference_steps) override;
  StepOutput advance(const Tensor& model_output, double timestep, const Tensor& sample,
                     const StepOptions& options) override;

 private:
  FlowMatchEulerDiscreteConfig config_;
  double shift_, sigma_min_, sigma_max_;
};

}  // namespace sf::diffusion
