// DDIM: Song et al. 2020, arXiv 2010.02502. Deterministic for eta 0.
#pragma once
#include "scaffolding/diffusion/schedulers/scheduler.h"

namespace sf::diffusion {

struct DDIMConfig : BetaConfig {
  bool clip_sample = true;
  bool set_alpha_to_one = true;  // the last step ends without noise; else with that of timestep 0
  int64_t steps_offset = 0;
  std::string prediction_type = "epsilon";
  bool thresholding = false;
  double dynamic_thresholding_ratio = 0.995;
  double clip_sample_range = 1;
  double sample_max_value = 1;
  std::string timestep_spacing = "leading";
  bool rescale_betas_zero_snr = false;

  Fields fields();
};

class DDIMScheduler final : public AlphaScheduler {
 public:
  using Config = DDIMConfig;
  static constexpr const char* kName = "DDIMScheduler";
  explicit DDIMScheduler(DDIMConfig config = {});
  const char* name() const override { return kName; }
  Fields fields() override { return config_.fields(); }
  std::string_view step_parameters() const override {
    return "model_output, timestep, sample, eta, use_clipped_model_output, generator, variance_noise, return_dict";
  }

 protected:
  void make_schedule(const TimestepOptions& options, int64_t num_inference_steps) override;
  StepOutput advance(const Tensor& model_output, double timestep, const Tensor& sample,
                     const StepOptions& options) override;

 private:
  DDIMConfig config_;
};

}  // namespace sf::diffusion
