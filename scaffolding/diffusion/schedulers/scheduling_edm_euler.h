// Euler's method on EDM's noise levels: Karras et al. 2022, arXiv 2206.00364, algorithm 2.
#pragma once
#include "scaffolding/diffusion/schedulers/edm.h"

namespace sf::diffusion {

struct EDMEulerConfig : EDMConfig {
  Fields fields();
};

class EDMEulerScheduler final : public SigmaScheduler {
 public:
  using Config = EDMEulerConfig;
  static constexpr const char* kName = "EDMEulerScheduler";
  explicit EDMEulerScheduler(EDMEulerConfig config = {});
  const char* name() const override { return kName; }
  Fields fields() override { return config_.fields(); }
  double init_noise_sigma() const override { return config_.initial_sigma(); }
  // sigmas: shares of the way from sigma_max to sigma_min, as diffusers takes them.
  std::string_view timestep_parameters() const override { return "num_inference_steps, device, sigmas"; }
  std::string_view step_parameters() const override {
    return "model_output, timestep, sample, s_churn, s_tmin, s_tmax, s_noise, generator, return_dict, "
           "pred_original_sample";
  }
  Tensor scale_model_input(const Tensor& sample, double timestep) override;

 protected:
  void make_schedule(const TimestepOptions& options, int64_t num_inference_steps) override;
  StepOutput advance(const Tensor& model_output, double timestep, const Tensor& sample,
                     const StepOptions& options) override;
  bool needs_set_timesteps() const override { return false; }

 private:
  void take_levels(const std::vector<float>& levels, Device device);
  EDMEulerConfig config_;
};

}  // namespace sf::diffusion
