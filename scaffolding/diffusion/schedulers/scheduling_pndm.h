// PNDM: Liu et al. 2022, arXiv 2202.09778. Linear multistep of fourth order, after three Runge-Kutta steps or, with
// skip_prk_steps, after steps of rising order.
#pragma once
#include "scaffolding/diffusion/schedulers/scheduler.h"

namespace sf::diffusion {

struct PNDMConfig : BetaConfig {
  bool skip_prk_steps = false;
  bool set_alpha_to_one = false;
  std::string prediction_type = "epsilon";
  std::string timestep_spacing = "leading";
  int64_t steps_offset = 0;

  Fields fields();
};

class PNDMScheduler final : public AlphaScheduler {
 public:
  using Config = PNDMConfig;
  static constexpr const char* kName = "PNDMScheduler";
  explicit PNDMScheduler(PNDMConfig config = {});
  const char* name() const override { return kName; }
  Fields fields() override { return config_.fields(); }
  Tensor get_velocity(const Tensor& sample, const Tensor& noise, const Tensor& timesteps) override {
    return Scheduler::get_velocity(sample, noise, timesteps);
  }
  void keep_samples(const Tensor& places) override {
    for (Tensor& t : ets_) keep_places(t, places);
    keep_places(cur_model_output_, places), keep_places(cur_sample_, places);
  }
  std::vector<RunState> run_state() override;
  const std::vector<int64_t>& prk_timesteps() const { return prk_timesteps_; }  // of the Runge-Kutta steps
  void choose_method(std::string method) { method_ = std::move(method); }       // of the next step: prk or plms

 protected:
  void make_schedule(const TimestepOptions& options, int64_t num_inference_steps) override;
  StepOutput advance(const Tensor& model_output, double timestep, const Tensor& sample,
                     const StepOptions& options) override;

 private:
  Tensor runge_kutta(const Tensor& model_output, int64_t timestep, const Tensor& sample);
  Tensor multistep(const Tensor& model_output, int64_t timestep, const Tensor& sample);
  Tensor previous(const Tensor& sample, int64_t timestep, int64_t prev_timestep, const Tensor& model_output) const;

  PNDMConfig config_;
  std::vector<int64_t> prk_timesteps_;
  std::string method_;   // empty: as the run's place says
  int64_t counter_ = 0;  // calls of step in this run
  Tensor cur_model_output_, cur_sample_;
  Tensors ets_;  // model outputs, oldest first, at most four
};

}  // namespace sf::diffusion
