#include "scaffolding/diffusion/schedulers/scheduling_edm_dpmsolver_multistep.h"

#include <algorithm>
#include <cmath>

#include "scaffolding/core/error.h"
#include "scaffolding/diffusion/schedulers/factor.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion {

Fields EDMDPMSolverMultistepConfig::fields() {
  return {{"sigma_min", &sigma_min},
          {"sigma_max", &sigma_max},
          {"sigma_data", &sigma_data},
          {"sigma_schedule", &sigma_schedule},
          {"num_train_timesteps", &num_train_timesteps},
          {"prediction_type", &prediction_type},
          {"rho", &rho},
          {"solver_order", &solver_order},
          {"thresholding", &thresholding},
          {"dynamic_thresholding_ratio", &dynamic_thresholding_ratio},
          {"sample_max_value", &sample_max_value},
          {"algorithm_type", &algorithm_type},
          {"solver_type", &solver_type},
          {"lower_order_final", &lower_order_final},
          {"euler_at_final", &euler_at_final},
          {"final_sigmas_type", &final_sigmas_type}};
}

EDMDPMSolverMultistepScheduler::EDMDPMSolverMultistepScheduler(EDMDPMSolverMultistepConfig config)
    : config_(std::move(config)) {
  config_.check(kName);
  SF_CHECK(config_.solver_order >= 1 && config_.solver_order <= 3, kName, ": solver_order must be 1, 2 or 3, got ",
           config_.solver_order);
  take_names_of_others(config_);
  check_one_of(kName, "algorithm_type", config_.algorithm_type, {"dpmsolver++", "sde-dpmsolver++"});
  check_one_of(kName, "solver_type", config_.solver_type, {"midpoint", "heun"});
  SF_CHECK(config_.algorithm_type != "sde-dpmsolver++" || config_.solver_order < 3, kName,
           ": sde-dpmsolver++ has no third order here, got solver_order=3");
  check_clipping(kName, 1, config_.dynamic_thresholding_ratio, config_.sample_max_value);
  num_train_timesteps_ = config_.num_train_timesteps;
  unscaled_ = true;
  history_.resize(size_t(config_.solver_order));
  take_levels(num_train_timesteps_, {});
}

void EDMDPMSolverMultistepScheduler::take_levels(int64_t n, Device device) {
  const auto levels = config_.levels<float>(linspace(0.0, 1.0, n, kFloat32, Device::CPU).to_vector());
  set_schedule(config_.timesteps_of(levels), kFloat32, device);
  set_sigmas(config_.with_end(levels));
}

void EDMDPMSolverMultistepScheduler::make_schedule(const TimestepOptions& o, int64_t n) {
  num_inference_steps_ = n;
  take_levels(n, o.device);
  restart();
}

Tensor EDMDPMSolverMultistepScheduler::scale_model_input(const Tensor& sample, double timestep) {
  check_floating(kName, "sample", sample);
  start_index(timestep);
  return config_.scaled_input(sample, sigma_at(*step_index_));
}

StepOutput EDMDPMSolverMultistepScheduler::advance(const Tensor& output, double timestep, const Tensor& sample,
                                                   const StepOptions& o) {
  start_index(timestep);
  const auto steps = int64_t(timestep_values_.size()), at = *step_index_;
  const bool few = config_.lower_order_final && steps < 15;
  Tensor original = config_.original(output, sample, sigma_at(at));
  if (config_.thresholding)
    original = threshold_sample(original, config_.dynamic_thresholding_ratio, config_.sample_max_value);
  remember(original);
  Tensor noise;
  if (config_.algorithm_type == "sde-dpmsolver++")
    noise = randn_tensor(original.shape(), o.generator, original.device(), original.dtype());
  const bool last = at == steps - 1 && (config_.euler_at_final || few || config_.final_sigmas_type == "zero");
  int64_t order = 3;
  if (config_.solver_order == 1 || lower_order_nums_ < 1 || last) order = 1;
  else if (config_.solver_order == 2 || lower_order_nums_ < 2 || (few && at == steps - 2)) order = 2;
  Tensor prev_sample = dpm_multistep(config_.algorithm_type, config_.solver_type, order, sample, noise);
  lower_order_nums_ = std::min(lower_order_nums_ + 1, config_.solver_order);
  ++*step_index_;
  return {prev_sample, {}};
}

}  // namespace sf::diffusion
