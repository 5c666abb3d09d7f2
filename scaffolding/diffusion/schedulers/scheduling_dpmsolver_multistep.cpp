#include "scaffolding/diffusion/schedulers/scheduling_dpmsolver_multistep.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "scaffolding/core/error.h"
#include "scaffolding/diffusion/schedulers/factor.h"
#include "scaffolding/diffusion/schedulers/scheduling_ddpm.h"
#include "scaffolding/diffusion/schedulers/timestep_spacing.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion {

Fields DPMSolverMultistepConfig::fields() {
  Fields f = BetaConfig::fields();
  f.insert(f.end(), {{"solver_order", &solver_order},
                     {"prediction_type", &prediction_type},
                     {"thresholding", &thresholding},
                     {"dynamic_thresholding_ratio", &dynamic_thresholding_ratio},
                     {"sample_max_value", &sample_max_value},
                     {"algorithm_type", &algorithm_type},
                     {"solver_type", &solver_type},
                     {"lower_order_final", &lower_order_final},
                     {"euler_at_final", &euler_at_final},
                     {"use_karras_sigmas", &use_karras_sigmas},
                     {"use_exponential_sigmas", &use_exponential_sigmas},
                     {"use_beta_sigmas", &use_beta_sigmas},
                     {"use_lu_lambdas", &use_lu_lambdas},
                     {"use_flow_sigmas", &use_flow_sigmas},
                     {"flow_shift", &flow_shift},
                     {"final_sigmas_type", &final_sigmas_type},
                     {"lambda_min_clipped", &lambda_min_clipped},
                     {"variance_type", &variance_type},
                     {"timestep_spacing", &timestep_spacing},
                     {"steps_offset", &steps_offset},
                     {"rescale_betas_zero_snr", &rescale_betas_zero_snr},
                     {"use_dynamic_shifting", &use_dynamic_shifting},
                     {"time_shift_type", &time_shift_type}});
  return f;
}

DPMSolverMultistepScheduler::DPMSolverMultistepScheduler(DPMSolverMultistepConfig config) : config_(std::move(config)) {
  check_solver(kName, config_, 3);
  take_names_of_others(config_);
  check_one_of(kName, "algorithm_type", config_.algorithm_type,
               {"dpmsolver", "dpmsolver++", "sde-dpmsolver", "sde-dpmsolver++"});
  check_dpm_solver(kName, config_);
  check_one_of(kName, "timestep_spacing", config_.timestep_spacing, {"linspace", "leading", "trailing"});
  SF_CHECK(config_.algorithm_type != "sde-dpmsolver" || config_.solver_order < 3, kName,
           ": sde-dpmsolver has no third order, got solver_order=3");
  set_up_levels(config_, config_.rescale_betas_zero_snr, config_.use_flow_sigmas, config_.solver_order);
}

void DPMSolverMultistepScheduler::make_schedule(const TimestepOptions& o, int64_t n) {
  SF_CHECK(!(o.num_inference_steps && o.timesteps), kName, ": takes num_inference_steps or timesteps, not both");
  SF_CHECK(!o.mu || config_.use_dynamic_shifting, kName, ": mu needs use_dynamic_shifting");
  SigmaCurve curve =
      sigma_curve(kName, config_.use_karras_sigmas, config_.use_exponential_sigmas, config_.use_beta_sigmas);
  SF_CHECK(!o.timesteps || (curve == SigmaCurve::None && !config_.use_lu_lambdas), kName,
           ": takes no timesteps where the config asks for Karras, exponential or beta sigmas or Lu's lambdas");
  double shift = o.mu ? std::exp(*o.mu) : config_.flow_shift;
  const std::vector<float>& table = training_sigmas_;
  std::vector<float> logs = log_of(table);
  std::vector<double> timesteps;
  if (o.timesteps) {
    for (double t : *o.timesteps) timesteps.push_back(std::trunc(t));
    n = int64_t(timesteps.size());
  } else {
    timesteps = spaced_timesteps({kName, config_.timestep_spacing, num_train_timesteps_, n, config_.steps_offset, true,
                                  clipped_end(config_.lambda_min_clipped), config_.timestep_spacing != "trailing"});
  }
  const bool whole = config_.beta_schedule != "squaredcos_cap_v2";
  std::vector<double> levels;
  float end = table.front();
  if (config_.use_lu_lambdas && curve != SigmaCurve::Karras) {
    for (double l : linspace64(0, 1, n))
      levels.push_back(std::exp(double(logs.back()) + l * (double(logs.front()) - double(logs.back()))));
    timesteps.clear();
    for (double s : levels) {
      const double t = sigma_to_timestep(s, logs);
      timesteps.push_back(whole ? std::nearbyint(t) : t);
    }
  } else {
    std::tie(levels, end) =
        dpm_levels(curve, whole && curve == SigmaCurve::Karras, config_.use_flow_sigmas, shift, n, timesteps);
  }
  std::vector<float> sigmas(levels.begin(), levels.end());
  sigmas.push_back(config_.final_sigmas_type == "zero" ? 0 : end);
  num_inference_steps_ = int64_t(timesteps.size());
  set_schedule(timesteps, kInt64, o.device);
  set_sigmas(sigmas);
  restart();
}

StepOutput DPMSolverMultistepScheduler::advance(const Tensor& output, double timestep, const Tensor& sample,
                                                const StepOptions& o) {
  start_index(timestep);
  auto steps = int64_t(timestep_values_.size()), at = *step_index_;
  bool few = config_.lower_order_final && steps < 15;
  bool last_first_order = at == steps - 1 && (config_.euler_at_final || few || config_.final_sigmas_type == "zero");
  bool last_second_order = at == steps - 2 && few;
  Tensor converted = dpm_converted(config_, output, sample);
  Tensor noise;
  if (stochastic()) {
    noise = o.variance_noise ? o.variance_noise.to(converted.device()).to(kFloat32)
                             : randn_tensor(converted.shape(), o.generator, converted.device(), kFloat32);
  }
  remember(converted);
  int64_t order = 3;
  if (config_.solver_order == 1 || lower_order_nums_ < 1 || last_first_order) order = 1;
  else if (config_.solver_order == 2 || lower_order_nums_ < 2 || last_second_order) order = 2;
  // An earlier model's output may be missing where a run begins in the middle of a schedule:
  // lower_order_nums_ counts them.
  Tensor prev_sample = dpm_multistep(config_.algorithm_type, config_.solver_type, order, sample.to(kFloat32), noise)
                           .to(converted.dtype());
  lower_order_nums_ = std::min(lower_order_nums_ + 1, config_.solver_order);
  ++*step_index_;
  return {prev_sample, {}};
}

}  // namespace sf::diffusion
