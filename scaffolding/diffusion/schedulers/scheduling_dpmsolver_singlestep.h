// DPM-Solver and DPM-Solver++ in their single-step form: Lu et al. 2022, arXiv 2206.00927 and 2211.01095. Steps of
// rising order go in groups, each from the sample at which its group began.
#pragma once
#include "scaffolding/diffusion/schedulers/multistep.h"

namespace sf::diffusion {

struct DPMSolverSinglestepConfig : BetaConfig {
  int64_t solver_order = 2;
  std::string prediction_type = "epsilon";  // or sample, v_prediction, flow_prediction
  bool thresholding = false;
  double dynamic_thresholding_ratio = 0.995;
  double sample_max_value = 1;
  std::string algorithm_type = "dpmsolver++";  // or dpmsolver, sde-dpmsolver++
  std::string solver_type = "midpoint";        // or heun
  bool lower_order_final = false;  // the last group is of lower order; so it is too where steps make no whole groups,
                                   // and where the run ends without noise
  bool use_karras_sigmas = false;
  bool use_exponential_sigmas = false;
  bool use_beta_sigmas = false;
  bool use_flow_sigmas = false;
  double flow_shift = 1;
  std::string final_sigmas_type = "zero";  // or sigma_min
  double lambda_min_clipped = -std::numeric_limits<double>::infinity();
  // learned, learned_range: the model's output has more than three channels. Those of DDPM's configs change nothing.
  std::optional<std::string> variance_type;
  bool use_dynamic_shifting = false;  // set_timesteps takes mu, whose exponential is the flow_shift
  std::string time_shift_type = "exponential";

  Fields fields();
};

class DPMSolverSinglestepScheduler final : public MultistepScheduler {
 public:
  using Config = DPMSolverSinglestepConfig;
  static constexpr const char* kName = "DPMSolverSinglestepScheduler";
  explicit DPMSolverSinglestepScheduler(DPMSolverSinglestepConfig config = {});
  const char* name() const override { return kName; }
  Fields fields() override { return config_.fields(); }
  std::string_view timestep_parameters() const override { return "num_inference_steps, device, mu, timesteps"; }
  std::string_view step_parameters() const override { return "model_output, timestep, sample, generator, return_dict"; }
  void keep_samples(const Tensor& places) override {
    MultistepScheduler::keep_samples(places);
    keep_places(sample_, places);
  }
  std::vector<RunState> run_state() override;
  std::vector<int64_t> orders_of(int64_t steps) const;  // of each step of a run

 protected:
  void make_schedule(const TimestepOptions& options, int64_t num_inference_steps) override;
  StepOutput advance(const Tensor& model_output, double timestep, const Tensor& sample,
                     const StepOptions& options) override;
  bool learns_variance() const override { return config_.variance_type.value_or("").starts_with("learned"); }

 private:
  DPMSolverSinglestepConfig config_;
  std::vector<int64_t> orders_;
  Tensor sample_;  // at which the group under way began
};

}  // namespace sf::diffusion
