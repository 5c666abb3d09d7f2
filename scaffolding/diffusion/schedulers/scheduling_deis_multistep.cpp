#include "scaffolding/diffusion/schedulers/scheduling_deis_multistep.h"

#include <algorithm>
#include <cmath>

#include "scaffolding/core/error.h"
#include "scaffolding/diffusion/schedulers/factor.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion {

namespace {

// Integrals over t of Lagrange's polynomials in log t: of the one that is 1 at b and 0 at c, and at c and d.
float integral(float t, float b, float c) {
  const float lt = rounded_log(t), lb = rounded_log(b), lc = rounded_log(c);
  return t * (-lc + lt - 1) / (lb - lc);
}
float integral(float t, float b, float c, float d) {
  const float lt = rounded_log(t), lb = rounded_log(b), lc = rounded_log(c), ld = rounded_log(d);
  return t * (lc * (ld - lt + 1) - ld * lt + ld + lt * lt - 2 * lt + 2) / ((lb - lc) * (lb - ld));
}

}  // namespace

Fields DEISMultistepConfig::fields() {
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
                     {"timestep_spacing", &timestep_spacing},
                     {"steps_offset", &steps_offset},
                     {"use_dynamic_shifting", &use_dynamic_shifting},
                     {"time_shift_type", &time_shift_type}});
  return f;
}

DEISMultistepScheduler::DEISMultistepScheduler(DEISMultistepConfig config) : config_(std::move(config)) {
  check_solver(kName, config_, 3);
  // Names of other solvers in configs that are shared between schedulers.
  if (config_.algorithm_type == "dpmsolver" || config_.algorithm_type == "dpmsolver++") config_.algorithm_type = "deis";
  for (auto* other : {"midpoint", "heun", "bh1", "bh2"})
    if (config_.solver_type == other) config_.solver_type = "logrho";
  check_one_of(kName, "algorithm_type", config_.algorithm_type, {"deis"});
  check_one_of(kName, "solver_type", config_.solver_type, {"logrho"});
  check_one_of(kName, "prediction_type", config_.prediction_type,
               {"epsilon", "sample", "v_prediction", "flow_prediction"});
  check_one_of(kName, "timestep_spacing", config_.timestep_spacing, {"linspace", "leading", "trailing"});
  check_one_of(kName, "time_shift_type", config_.time_shift_type, {"exponential"});
  set_up_levels(config_, false, config_.use_flow_sigmas, config_.solver_order);
}

void DEISMultistepScheduler::make_schedule(const TimestepOptions& o, int64_t n) {
  SF_CHECK(!o.mu || config_.use_dynamic_shifting, kName, ": mu needs use_dynamic_shifting");
  const SigmaCurve curve =
      sigma_curve(kName, config_.use_karras_sigmas, config_.use_exponential_sigmas, config_.use_beta_sigmas);
  auto timesteps = spaced_timesteps({kName, config_.timestep_spacing, num_train_timesteps_, n, config_.steps_offset,
                                     true, 0, config_.timestep_spacing != "trailing"});
  const double shift = o.mu ? std::exp(*o.mu) : config_.flow_shift;
  auto [levels, end] = dpm_levels(curve, curve == SigmaCurve::Karras, config_.use_flow_sigmas, shift, n, timesteps);
  std::vector<float> sigmas(levels.begin(), levels.end());
  sigmas.push_back(curve != SigmaCurve::None || config_.use_flow_sigmas ? sigmas.back() : end);
  num_inference_steps_ = int64_t(timesteps.size());
  set_schedule(timesteps, kInt64, o.device);
  set_sigmas(sigmas);
  restart();
}

StepOutput DEISMultistepScheduler::advance(const Tensor& output, double timestep, const Tensor& sample,
                                           const StepOptions&) {
  start_index(timestep);
  const auto steps = int64_t(timestep_values_.size()), at = *step_index_;
  const bool few = config_.lower_order_final && steps < 15;
  Tensor original = original_of(config_.prediction_type, output, sample);
  if (config_.thresholding)
    original = threshold_sample(original, config_.dynamic_thresholding_ratio, config_.sample_max_value);
  const Level level = level_at(at);
  remember(predicted_epsilon("sample", original, sample, level.alpha, level.sigma));
  int64_t order = 3;
  if (config_.solver_order == 1 || lower_order_nums_ < 1 || (few && at == steps - 1)) order = 1;
  else if (config_.solver_order == 2 || lower_order_nums_ < 2 || (few && at == steps - 2)) order = 2;
  Tensor prev_sample = update(order, sample);
  lower_order_nums_ = std::min(lower_order_nums_ + 1, config_.solver_order);
  ++*step_index_;
  return {prev_sample, {}};
}

Tensor DEISMultistepScheduler::update(int64_t order, const Tensor& sample) const {
  const int64_t i = *step_index_;
  const Level t = level_at(i + 1), s0 = level_at(i);
  if (order == 1) {
    const float h = t.lambda - s0.lambda;
    return t.alpha / s0.alpha * sample - t.sigma * (rounded_exp(h) - 1) * history(0);
  }
  auto rho = [](const Level& level) { return level.sigma / level.alpha; };
  const float to = rho(t), r0 = rho(s0), r1 = rho(level_at(i - 1));
  if (order == 2) {
    const float c0 = integral(to, r0, r1) - integral(r0, r0, r1), c1 = integral(to, r1, r0) - integral(r0, r1, r0);
    return t.alpha * (sample / s0.alpha + c0 * history(0) + c1 * history(1));
  }
  const float r2 = rho(level_at(i - 2));
  const float c0 = integral(to, r0, r1, r2) - integral(r0, r0, r1, r2),
              c1 = integral(to, r1, r2, r0) - integral(r0, r1, r2, r0),
              c2 = integral(to, r2, r0, r1) - integral(r0, r2, r0, r1);
  return t.alpha * (sample / s0.alpha + c0 * history(0) + c1 * history(1) + c2 * history(2));
}

}  // namespace sf::diffusion
