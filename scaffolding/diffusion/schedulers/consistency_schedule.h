// ConsistencyScheduler: what the samplers of distilled models share, whose few timesteps are some of their teacher's.
#pragma once
#include "scaffolding/diffusion/schedulers/scheduler.h"

namespace sf::diffusion {

struct ConsistencyConfig : BetaConfig {
  ConsistencyConfig() {
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

class ConsistencyScheduler : public AlphaScheduler {
 public:
  using Config = ConsistencyConfig;
  explicit ConsistencyScheduler(ConsistencyConfig config) : config_(std::move(config)) {}
  Fields fields() override { return config_.fields(); }
  std::string_view timestep_parameters() const override {
    return "num_inference_steps, device, original_inference_steps, timesteps, strength";
  }

 protected:
  void set_up(const char* who);
  void make_schedule(const TimestepOptions& options, int64_t num_inference_steps) override;
  // With set_timesteps' original_inference_steps: of all training timesteps instead of so many of the teacher's.
  virtual bool takes_every_timestep() const { return false; }

  ConsistencyConfig config_;
};

}  // namespace sf::diffusion
