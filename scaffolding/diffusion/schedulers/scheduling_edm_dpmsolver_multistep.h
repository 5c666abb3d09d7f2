// DPM-Solver++ (Lu et al. 2022, arXiv 2211.01095) on EDM's noise levels, where sample = original + sigma * noise.
#pragma once
#include "scaffolding/diffusion/schedulers/edm.h"
#include "scaffolding/diffusion/schedulers/multistep.h"

namespace sf::diffusion {

struct EDMDPMSolverMultistepConfig : EDMConfig {
  int64_t solver_order = 2;
  bool thresholding = false;
  double dynamic_thresholding_ratio = 0.995;
  double sample_max_value = 1;
  std::string algorithm_type = "dpmsolver++";  // or sde-dpmsolver++
  std::string solver_type = "midpoint";        // or heun
  bool lower_order_final = true;
  bool euler_at_final = false;

  Fields fields();
};

class EDMDPMSolverMultistepScheduler final : public MultistepScheduler {
 public:
  using Config = EDMDPMSolverMultistepConfig;
  static constexpr const char* kName = "EDMDPMSolverMultistepScheduler";
  explicit EDMDPMSolverMultistepScheduler(EDMDPMSolverMultistepConfig config = {});
  const char* name() const override { return kName; }
  Fields fields() override { return config_.fields(); }
  double init_noise_sigma() const override { return config_.initial_sigma(); }
  std::string_view step_parameters() const override { return "model_output, timestep, sample, generator, return_dict"; }
  Tensor scale_model_input(const Tensor& sample, double timestep) override;

 protected:
  void make_schedule(const TimestepOptions& options, int64_t num_inference_steps) override;
  StepOutput advance(const Tensor& model_output, double timestep, const Tensor& sample,
                     const StepOptions& options) override;

 private:
  void take_levels(int64_t n, Device device);
  EDMDPMSolverMultistepConfig config_;
};

}  // namespace sf::diffusion
