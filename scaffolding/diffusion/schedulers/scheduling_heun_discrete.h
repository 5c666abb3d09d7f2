// Heun's method: Karras et al. 2022, arXiv 2206.00364, algorithm 2, of second order: two calls of the model a step.
#pragma once
#include "scaffolding/diffusion/schedulers/scheduler.h"

namespace sf::diffusion {

struct HeunDiscreteConfig : BetaConfig {
  HeunDiscreteConfig() {
    beta_start = 0.00085;
    beta_end = 0.012;
  }
  std::string prediction_type = "epsilon";
  bool use_karras_sigmas = false;
  bool use_exponential_sigmas = false;
  bool use_beta_sigmas = false;
  bool clip_sample = false;
  double clip_sample_range = 1;
  std::string timestep_spacing = "linspace";
  int64_t steps_offset = 0;

  Fields fields();
};

class HeunDiscreteScheduler final : public SigmaScheduler {
 public:
  using Config = HeunDiscreteConfig;
  static constexpr const char* kName = "HeunDiscreteScheduler";
  explicit HeunDiscreteScheduler(HeunDiscreteConfig config = {});
  const char* name() const override { return kName; }
  Fields fields() override { return config_.fields(); }
  int64_t order() const override { return 2; }
  double init_noise_sigma() const override { return initial_sigma(config_.timestep_spacing); }
  std::string_view timestep_parameters() const override { return "num_inference_steps, device, timesteps"; }
  Tensor scale_model_input(const Tensor& sample, double timestep) override { return scaled_input(sample, timestep); }
  void keep_samples(const Tensor& places) override {
    keep_places(prev_derivative_, places), keep_places(sample_, places);
  }
  std::vector<RunState> run_state() override;

 protected:
  void make_schedule(const TimestepOptions& options, int64_t num_inference_steps) override;
  StepOutput advance(const Tensor& model_output, double timestep, const Tensor& sample,
                     const StepOptions& options) override;
  bool needs_set_timesteps() const override { return false; }

 private:
  HeunDiscreteConfig config_;
  // Between the two calls of a step: the first one's derivative, where it began, and its length.
  Tensor prev_derivative_, sample_;
  float dt_ = 0;
};

}  // namespace sf::diffusion
