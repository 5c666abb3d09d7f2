// UniPC: Zhao et al. 2023, arXiv 2302.04867: a predictor and a corrector of any order from one call of the model a
// step.
#pragma once
#include "scaffolding/diffusion/schedulers/multistep.h"

namespace sf::diffusion {

struct UniPCMultistepConfig : BetaConfig {
  int64_t solver_order = 2;
  std::string prediction_type = "epsilon";  // or sample, v_prediction, flow_prediction
  bool thresholding = false;
  double dynamic_thresholding_ratio = 0.995;
  double sample_max_value = 1;
  bool predict_x0 = true;
  std::string solver_type = "bh2";  // or bh1: the paper's B(h)
  bool lower_order_final = true;
  std::vector<int64_t> disable_corrector;  // steps whose result is not corrected
  std::optional<std::string> solver_p;     // in a file only null: set_solver_p() takes a scheduler
  bool use_karras_sigmas = false;
  bool use_exponential_sigmas = false;
  bool use_beta_sigmas = false;
  bool use_flow_sigmas = false;  // noise levels of flow matching: sample = (1 - sigma) signal + sigma noise
  double flow_shift = 1;
  std::string timestep_spacing = "linspace";
  int64_t steps_offset = 0;
  std::string final_sigmas_type = "zero";  // or sigma_min
  bool rescale_betas_zero_snr = false;
  bool use_dynamic_shifting = false;  // by set_timesteps' mu
  std::string time_shift_type = "exponential";
  std::optional<double> sigma_min, sigma_max;  // ends of the three curves
  std::optional<double> shift_terminal;        // the last noise level of a run of flow matching

  Fields fields();
};

class UniPCMultistepScheduler final : public MultistepScheduler {
 public:
  using Config = UniPCMultistepConfig;
  static constexpr const char* kName = "UniPCMultistepScheduler";
  explicit UniPCMultistepScheduler(UniPCMultistepConfig config = {});
  const char* name() const override { return kName; }
  Fields fields() override { return config_.fields(); }
  std::string_view timestep_parameters() const override { return "num_inference_steps, device, sigmas, mu"; }
  // Another scheduler that predicts instead of UniP; the corrector stays. It gets the same number of steps at each
  // set_timesteps(), and the model's own outputs. Null takes it off.
  void set_solver_p(std::shared_ptr<Scheduler> scheduler) { solver_p_ = std::move(scheduler); }
  void keep_samples(const Tensor& places) override {
    MultistepScheduler::keep_samples(places);
    keep_places(last_sample_, places);
    if (solver_p_) solver_p_->keep_samples(places);
  }
  std::vector<RunState> run_state() override;

 protected:
  void make_schedule(const TimestepOptions& options, int64_t num_inference_steps) override;
  StepOutput advance(const Tensor& model_output, double timestep, const Tensor& sample,
                     const StepOptions& options) override;

 private:
  Tensor convert(const Tensor& model_output, const Tensor& sample) const;
  // From noise level `from` to the one after it. corrected: the model's output there, for the corrector.
  Tensor update(int64_t from, int64_t order, const Tensor& sample, const Tensor& corrected) const;

  UniPCMultistepConfig config_;
  std::shared_ptr<Scheduler> solver_p_;
  int64_t this_order_ = 0;  // of the last step
  Tensor last_sample_;
};

}  // namespace sf::diffusion
