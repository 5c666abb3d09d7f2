// CogVideoXScheduler: what both samplers of CogVideoX share: a noise schedule shifted towards noise (Yang et al. 2024,
// arXiv 2408.06072), kept in float64 where it is scaled_linear.
#pragma once
#include "scaffolding/diffusion/schedulers/scheduler.h"

namespace sf::diffusion {

struct CogVideoXConfig : BetaConfig {
  CogVideoXConfig() {
    beta_start = 0.00085;
    beta_end = 0.012;
    beta_schedule = "scaled_linear";
  }
  bool clip_sample = true;  // this and the two ranges: of the config file only, nothing is clipped
  bool set_alpha_to_one = true;
  int64_t steps_offset = 0;
  std::string prediction_type = "epsilon";
  double clip_sample_range = 1;
  double sample_max_value = 1;
  std::string timestep_spacing = "leading";
  bool rescale_betas_zero_snr = false;
  double snr_shift_scale = 3;

  Fields fields();
};

class CogVideoXScheduler : public AlphaScheduler {
 public:
  Fields fields() override { return config_.fields(); }

 protected:
  void set_up_shifted(const char* who);
  void make_schedule(const TimestepOptions& options, int64_t num_inference_steps) override;
  int64_t previous_timestep(int64_t timestep) const { return timestep - num_train_timesteps_ / *num_inference_steps_; }
  template <class T> Tensor original_sample(const Tensor& model_output, int64_t timestep, const Tensor& sample) const;

  CogVideoXConfig config_;
  bool in_float64_ = false;
};

}  // namespace sf::diffusion
