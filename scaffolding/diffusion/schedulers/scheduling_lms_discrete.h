// Linear multistep in the noise level (k-diffusion's sample_lms): each step integrates the polynomial through the last
// few derivatives.
#pragma once
#include "scaffolding/diffusion/schedulers/scheduler.h"

namespace sf::diffusion {

struct LMSDiscreteConfig : BetaConfig {
  bool use_karras_sigmas = false;
  bool use_exponential_sigmas = false;
  bool use_beta_sigmas = false;
  std::string prediction_type = "epsilon";
  std::string timestep_spacing = "linspace";
  int64_t steps_offset = 0;

  Fields fields();
};

class LMSDiscreteScheduler final : public SigmaScheduler {
 public:
  using Config = LMSDiscreteConfig;
  static constexpr const char* kName = "LMSDiscreteScheduler";
  explicit LMSDiscreteScheduler(LMSDiscreteConfig config = {});
  const char* name() const override { return kName; }
  Fields fields() override { return config_.fields(); }
  double init_noise_sigma() const override { return initial_sigma(config_.timestep_spacing); }
  std::string_view step_parameters() const override { return "model_output, timestep, sample, order, return_dict"; }
  Tensor scale_model_input(const Tensor& sample, double timestep) override { return scaled_input(sample, timestep); }
  void keep_samples(const Tensor& places) override {
    for (Tensor& t : derivatives_) keep_places(t, places);
  }
  std::vector<RunState> run_state() override;
  // Of the derivative `back` steps ago: its Lagrange polynomial among `order` noise levels, integrated over step `at`.
  double coefficient(int64_t order, int64_t at, int64_t back) const;

 protected:
  void make_schedule(const TimestepOptions& options, int64_t num_inference_steps) override;
  StepOutput advance(const Tensor& model_output, double timestep, const Tensor& sample,
                     const StepOptions& options) override;
  bool needs_set_timesteps() const override { return false; }

 private:
  LMSDiscreteConfig config_;
  Tensors derivatives_;  // oldest first, at most as many as the order
};

}  // namespace sf::diffusion
