#include "scaffolding/diffusion/schedulers/scheduling_dpmsolver_singlestep.h"

#include <algorithm>
#include <cmath>

#include "scaffolding/core/error.h"
#include "scaffolding/diffusion/schedulers/factor.h"
#include "scaffolding/diffusion/schedulers/scheduling_ddpm.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion {

Fields DPMSolverSinglestepConfig::fields() {
  Fields f = BetaConfig::fields();
  f.insert(f.end(), {{"solver_order", &solver_order},
                     {"prediction_type", &prediction_type},
                     {"thresholding", &thresholding},
                     {"dynamic_thresholding_ratio", &dynamic_thresholding_ratio},
                     {"sample_max_value", &sample_max_value},
                     {"algorithm_type", &algorithm_type},
                     {"solver_type", &solver_type},
                     {"lower_order_final", &lower_order_final},
                     {"use_karras_sigmas", &use_karras_sigmas},
                     {"use_exponential_sigmas", &use_exponential_sigmas},
                     {"use_beta_sigmas", &use_beta_sigmas},
                     {"use_flow_sigmas", &use_flow_sigmas},
                     {"flow_shift", &flow_shift},
                     {"final_sigmas_type", &final_sigmas_type},
                     {"lambda_min_clipped", &lambda_min_clipped},
                     {"variance_type", &variance_type},
                     {"use_dynamic_shifting", &use_dynamic_shifting},
                     {"time_shift_type", &time_shift_type}});
  return f;
}

std::vector<RunState> DPMSolverSinglestepScheduler::run_state() {
  return {{"model_outputs", &history_, history_.size()}, {"sample", &sample_}};
}

DPMSolverSinglestepScheduler::DPMSolverSinglestepScheduler(DPMSolverSinglestepConfig config)
    : config_(std::move(config)) {
  check_solver(kName, config_, 3);
  take_names_of_others(config_);
  check_one_of(kName, "algorithm_type", config_.algorithm_type, {"dpmsolver", "dpmsolver++", "sde-dpmsolver++"});
  check_dpm_solver(kName, config_);
  set_up_levels(config_, false, config_.use_flow_sigmas, config_.solver_order);
}

std::vector<int64_t> DPMSolverSinglestepScheduler::orders_of(int64_t steps) const {
  const int64_t most = config_.solver_order;
  std::vector<int64_t> orders;
  for (int64_t i = 0; i < steps; ++i) orders.push_back(i % most + 1);
  // A whole last group then gives way to shorter ones: 1 2 3 becomes 1 2 1, and 1 2 becomes 1 1.
  const bool whole = steps % most == 0;
  if ((whole && config_.lower_order_final) || config_.final_sigmas_type == "zero") orders.back() = 1;
  return orders;
}

void DPMSolverSinglestepScheduler::make_schedule(const TimestepOptions& o, int64_t n) {
  SF_CHECK(!(o.num_inference_steps && o.timesteps), kName, ": takes num_inference_steps or timesteps, not both");
  SF_CHECK(!o.mu || config_.use_dynamic_shifting, kName, ": mu needs use_dynamic_shifting");
  const SigmaCurve curve =
      sigma_curve(kName, config_.use_karras_sigmas, config_.use_exponential_sigmas, config_.use_beta_sigmas);
  SF_CHECK(!o.timesteps || curve == SigmaCurve::None, kName,
           ": takes no timesteps where the config asks for Karras, exponential or beta sigmas");
  std::vector<double> timesteps;
  if (o.timesteps) {
    for (double t : *o.timesteps) timesteps.push_back(std::trunc(t));
    n = int64_t(timesteps.size());
  } else {
    timesteps = spaced_timesteps(
        {kName, "linspace", num_train_timesteps_, n, 0, true, clipped_end(config_.lambda_min_clipped), true});
  }
  const double shift = o.mu ? std::exp(*o.mu) : config_.flow_shift;
  auto [levels, end] = dpm_levels(curve, curve == SigmaCurve::Karras, config_.use_flow_sigmas, shift, n, timesteps);
  std::vector<float> sigmas(levels.begin(), levels.end());
  sigmas.push_back(config_.final_sigmas_type == "zero" ? 0 : end);
  num_inference_steps_ = n;
  set_schedule(timesteps, kInt64, o.device);
  set_sigmas(sigmas);
  restart();
  sample_ = {};
  orders_ = orders_of(n);
}

StepOutput DPMSolverSinglestepScheduler::advance(const Tensor& output, double timestep, const Tensor& sample,
                                                 const StepOptions& o) {
  start_index(timestep);
  const int64_t i = *step_index_;
  const std::string& algorithm = config_.algorithm_type;
  const Tensor converted = dpm_converted(config_, output, sample);
  remember(converted);
  Tensor noise;
  if (algorithm.starts_with("sde-"))
    noise = randn_tensor(converted.shape(), o.generator, converted.device(), converted.dtype());
  // An earlier model's output may be missing where a run begins in the middle of a schedule.
  int64_t order = i < int64_t(orders_.size()) ? orders_[size_t(i)] : 1;
  while (order > 1 && (!history(size_t(order - 1)) || !sample_ || i < order - 1)) --order;
  if (order == 1) sample_ = sample;
  const Level t = level_at(i + 1), s0 = level_at(i), s = level_at(i - (order - 1));  // s: where the group began
  const float h = t.lambda - s.lambda;
  const Tensor& first = history(size_t(order - 1));
  Tensor D1, D2;
  if (order == 2) {
    const float r0 = (s0.lambda - s.lambda) / h;
    D1 = 1 / r0 * (history(0) - first);
  } else if (order == 3) {
    const float r0 = (s0.lambda - s.lambda) / h, r1 = (level_at(i - 1).lambda - s.lambda) / h;
    const Tensor d0 = 1 / r1 * (history(1) - first), d1 = 1 / r0 * (history(0) - first);
    D1 = d1;
    if (config_.solver_type == "heun") {
      D1 = (r0 * d0 - r1 * d1) / (r0 - r1);
      D2 = 2.0 * (d1 - d0) / (r0 - r1);
    }
  }
  const DPMStep step = dpm_step(algorithm, config_.solver_type == "heun" || order == 3, t, s, h);
  Tensor prev_sample = step(sample_, first, D1, D2, noise);
  ++*step_index_;
  return {prev_sample, {}};
}

}  // namespace sf::diffusion
