// DDPM: Ho et al. 2020, arXiv 2006.11239.
#pragma once
#include "scaffolding/diffusion/schedulers/scheduler.h"

namespace sf::diffusion {

struct DDPMConfig : BetaConfig {
  // fixed_small, fixed_small_log, fixed_large, fixed_large_log, learned, learned_range: of the noise that a step adds.
  // For the learned ones the model's output has twice the sample's channels.
  // None, in configs of other schedulers, is the first.
  std::optional<std::string> variance_type = "fixed_small";
  bool clip_sample = true;
  std::string prediction_type = "epsilon";
  bool thresholding = false;
  double dynamic_thresholding_ratio = 0.995;
  double clip_sample_range = 1;
  double sample_max_value = 1;
  std::string timestep_spacing = "leading";
  int64_t steps_offset = 0;
  bool rescale_betas_zero_snr = false;

  Fields fields();
};

class DDPMScheduler final : public AlphaScheduler {
 public:
  using Config = DDPMConfig;
  static constexpr const char* kName = "DDPMScheduler";
  explicit DDPMScheduler(DDPMConfig config = {});
  const char* name() const override { return kName; }
  Fields fields() override { return config_.fields(); }
  std::string_view timestep_parameters() const override { return "num_inference_steps, device, timesteps"; }
  std::string_view step_parameters() const override { return "model_output, timestep, sample, generator, return_dict"; }

 protected:
  void make_schedule(const TimestepOptions& options, int64_t num_inference_steps) override;
  StepOutput advance(const Tensor& model_output, double timestep, const Tensor& sample,
                     const StepOptions& options) override;
  bool learns_variance() const override { return learned_; }
  bool needs_set_timesteps() const override { return false; }  // without it a step is one of the training's

 private:
  std::string variance_type() const { return config_.variance_type.value_or("fixed_small"); }
  int64_t previous_timestep(int64_t timestep) const;
  DDPMConfig config_;
  bool learned_;
};

}  // namespace sf::diffusion
