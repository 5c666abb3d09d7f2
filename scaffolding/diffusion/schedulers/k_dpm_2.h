// KDPM2Scheduler: what DPM-2 (Karras et al. 2022, arXiv 2206.00364, as k-diffusion's sample_dpm_2) and its ancestral
// form share: a step of second order that calls the model at its beginning and at a noise level in between.
#pragma once
#include "scaffolding/diffusion/schedulers/scheduler.h"

namespace sf::diffusion {

struct KDPM2Config : BetaConfig {
  KDPM2Config() {
    beta_start = 0.00085;
    beta_end = 0.012;
  }
  bool use_karras_sigmas = false;
  bool use_exponential_sigmas = false;
  bool use_beta_sigmas = false;
  std::string prediction_type = "epsilon";
  std::string timestep_spacing = "linspace";
  int64_t steps_offset = 0;

  Fields fields();
};

class KDPM2Scheduler : public SigmaScheduler {
 public:
  using Config = KDPM2Config;
  explicit KDPM2Scheduler(KDPM2Config config);
  Fields fields() override { return config_.fields(); }
  int64_t order() const override { return 2; }
  double init_noise_sigma() const override { return initial_sigma(config_.timestep_spacing); }
  Tensor scale_model_input(const Tensor& sample, double timestep) override;
  void keep_samples(const Tensor& places) override { keep_places(sample_, places); }
  std::vector<RunState> run_state() override;

 protected:
  // Of a step: the noise level in between, the one it goes down to, and that of fresh noise after it.
  struct Levels {
    float between, down, up;
  };
  virtual Levels levels(float from, float to) const = 0;
  virtual bool adds_noise() const { return false; }

  void set_up(const char* who);
  void make_schedule(const TimestepOptions& options, int64_t num_inference_steps) override;
  StepOutput advance(const Tensor& model_output, double timestep, const Tensor& sample,
                     const StepOptions& options) override;
  bool needs_set_timesteps() const override { return false; }
  // The noise level in the middle of two, of their logarithms; 0 below the last.
  static float middle(float a, float b);

 private:
  size_t step_at(int64_t index) const { return std::min(size_t(index) / 2, levels_.size() - 1); }
  KDPM2Config config_;
  std::vector<Levels> levels_;  // of each step
  Tensor sample_;               // where the step under way began; none between steps
};

}  // namespace sf::diffusion
