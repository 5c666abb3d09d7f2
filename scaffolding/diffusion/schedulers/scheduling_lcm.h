// Latent consistency models: Luo et al. 2023, arXiv 2310.04378: few steps, each a whole prediction with fresh noise.
#pragma once
#include "scaffolding/diffusion/schedulers/scheduler.h"

namespace sf::diffusion {

struct LCMConfig : BetaConfig {
  LCMConfig() {
    beta_start = 0.00085;
    beta_end = 0.012;
    beta_schedule = "scaled_linear";
  }
  int64_t original_inference_steps = 50;  // of the teacher's schedule, from which runs choose theirs
  bool clip_sample = false;
  double clip_sample_range = 1;
  bool set_alpha_to_one = true;
  int64_t steps_offset = 0;
  std::string prediction_type = "epsilon";
  bool thresholding = false;
  double dynamic_thresholding_ratio = 0.995;
  double sample_max_value = 1;
  std::string timestep_spacing = "leading";
  double timestep_scaling = 10;  // of the boundary condition: how soon the sample itself counts
  bool rescale_betas_zero_snr = false;

  Fields fields();
};

class LCMScheduler final : public AlphaScheduler {
 public:
  using Config = LCMConfig;
  static constexpr const char* kName = "LCMScheduler";
  explicit LCMScheduler(LCMConfig config = {});
  const char* name() const override { return kName; }
  Fields fields() override { return config_.fields(); }
  std::string_view timestep_parameters() const override {
    return "num_inference_steps, device, original_inference_steps, timesteps, strength";
  }
  std::string_view step_parameters() const override { return "model_output, timestep, sample, generator, return_dict"; }

 protected:
  void make_schedule(const TimestepOptions& options, int64_t num_inference_steps) override;
  // pred_original_sample is diffusers' `denoised`.
  StepOutput advance(const Tensor& model_output, double timestep, const Tensor& sample,
                     const StepOptions& options) override;

 private:
  LCMConfig config_;
};

}  // namespace sf::diffusion
