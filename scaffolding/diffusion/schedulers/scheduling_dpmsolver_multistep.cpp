#include "scaffolding/diffusion/schedulers/scheduling_dpmsolver_multistep.h"

#include <algorithm>
#include <cmath>

#include "scaffolding/core/error.h"
#include "scaffolding/diffusion/schedulers/factor.h"
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
  check_betas(kName, config_);
  SF_CHECK(config_.solver_order >= 1 && config_.solver_order <= 3, kName, ": solver_order must be 1, 2 or 3, got ",
           config_.solver_order);
  // Names of other solvers in configs that are shared between schedulers.
  if (config_.algorithm_type == "deis") config_.algorithm_type = "dpmsolver++";
  if (config_.solver_type == "logrho" || config_.solver_type == "bh1" || config_.solver_type == "bh2")
    config_.solver_type = "midpoint";
  check_one_of(kName, "algorithm_type", config_.algorithm_type,
               {"dpmsolver", "dpmsolver++", "sde-dpmsolver", "sde-dpmsolver++"});
  check_one_of(kName, "solver_type", config_.solver_type, {"midpoint", "heun"});
  if (predicts_original()) {
    check_one_of(kName, "prediction_type", config_.prediction_type,
                 {"epsilon", "sample", "v_prediction", "flow_prediction"});
  } else {
    check_one_of(kName, "prediction_type", config_.prediction_type, {"epsilon", "sample", "v_prediction"});
  }
  check_one_of(kName, "final_sigmas_type", config_.final_sigmas_type, {"zero", "sigma_min"});
  check_one_of(kName, "timestep_spacing", config_.timestep_spacing, {"linspace", "leading", "trailing"});
  check_one_of(kName, "time_shift_type", config_.time_shift_type, {"exponential"});
  if (config_.variance_type) check_one_of(kName, "variance_type", *config_.variance_type, {"learned", "learned_range"});
  SF_CHECK(predicts_original() || config_.final_sigmas_type != "zero", kName,
           ": final_sigmas_type=zero needs dpmsolver++ or sde-dpmsolver++, got algorithm_type=", config_.algorithm_type,
           "; pass final_sigmas_type=sigma_min");
  SF_CHECK(config_.algorithm_type != "sde-dpmsolver" || config_.solver_order < 3, kName,
           ": sde-dpmsolver has no third order, got solver_order=3");
  SF_CHECK(config_.flow_shift > 0 && std::isfinite(config_.flow_shift), kName, ": flow_shift must be positive, got ",
           config_.flow_shift);
  SF_CHECK(!std::isnan(config_.lambda_min_clipped), kName, ": lambda_min_clipped must be a number, got NaN");
  check_clipping(kName, 1, config_.dynamic_thresholding_ratio, config_.sample_max_value);
  sigma_curve(kName, config_.use_karras_sigmas, config_.use_exponential_sigmas, config_.use_beta_sigmas);
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
    // The noisiest timestep whose lambda is at least lambda_min_clipped.
    int64_t last = num_train_timesteps_;
    while (last > 1) {
      float alpha = float(alphas_cumprod_[size_t(last - 1)]);
      if (std::log(std::sqrt(alpha)) - std::log(std::sqrt(1 - alpha)) >= float(config_.lambda_min_clipped)) break;
      --last;
    }
    timesteps = spaced_timesteps({kName, config_.timestep_spacing, num_train_timesteps_, n, config_.steps_offset, true,
                                  last, config_.timestep_spacing != "trailing"});
  }
  std::vector<double> levels;
  bool whole = config_.beta_schedule != "squaredcos_cap_v2";
  auto take_timesteps = [&](bool rounded) {
    timesteps.clear();
    for (double s : levels)
      timesteps.push_back(rounded ? std::nearbyint(sigma_to_timestep(s, logs)) : sigma_to_timestep(s, logs));
  };
  if (curve == SigmaCurve::Karras) {
    levels = karras_sigmas(double(table.front()), double(table.back()), n);
    take_timesteps(whole);
  } else if (config_.use_lu_lambdas) {
    for (double l : linspace64(0, 1, n))
      levels.push_back(std::exp(double(logs.back()) + l * (double(logs.front()) - double(logs.back()))));
    take_timesteps(whole);
  } else if (curve != SigmaCurve::None) {
    levels = curve_sigmas(curve, double(table.front()), double(table.back()), n);
    take_timesteps(false);
  } else if (config_.use_flow_sigmas) {
    auto alphas = linspace64(1, 1.0 / double(num_train_timesteps_), n + 1);
    for (double& a : alphas) a = 1 - a;
    levels = flow_shifted(shift, alphas);
    std::reverse(levels.begin(), levels.end());
    levels.pop_back();
    timesteps = levels;
    for (double& t : timesteps) t *= double(num_train_timesteps_);
  } else {
    levels = interpolate(timesteps, table);
  }
  std::vector<float> sigmas(levels.begin(), levels.end());
  sigmas.push_back(config_.final_sigmas_type == "zero" ? 0 : table.front());
  num_inference_steps_ = int64_t(timesteps.size());
  set_schedule(timesteps, kInt64, o.device);
  set_sigmas(sigmas);
  restart();
}

Tensor DPMSolverMultistepScheduler::convert(const Tensor& output, const Tensor& sample) const {
  const std::string& type = config_.prediction_type;
  // A model that also predicts a variance has it in the channels after the sample's.
  Tensor model_output = output.shape() == sample.shape() ? output : output.narrow(1, 0, sample.size(1));
  if (predicts_original()) {
    Tensor original = original_of(type, model_output, sample);
    return config_.thresholding
               ? threshold_sample(original, config_.dynamic_thresholding_ratio, config_.sample_max_value)
               : original;
  }
  Level at = level_at(*step_index_);
  Tensor epsilon = predicted_epsilon(type, model_output, sample, at.alpha, at.sigma);
  if (!config_.thresholding) return epsilon;
  Tensor original = predicted_original("epsilon", epsilon, sample, at.alpha, at.sigma);
  return predicted_epsilon("sample",
                           threshold_sample(original, config_.dynamic_thresholding_ratio, config_.sample_max_value),
                           sample, at.alpha, at.sigma);
}

StepOutput DPMSolverMultistepScheduler::advance(const Tensor& output, double timestep, const Tensor& sample,
                                                const StepOptions& o) {
  start_index(timestep);
  auto steps = int64_t(timestep_values_.size()), at = *step_index_;
  bool few = config_.lower_order_final && steps < 15;
  bool last_first_order = at == steps - 1 && (config_.euler_at_final || few || config_.final_sigmas_type == "zero");
  bool last_second_order = at == steps - 2 && few;
  Tensor converted = convert(output, sample);
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
  Tensor prev_sample = update(order, sample.to(kFloat32), noise).to(converted.dtype());
  lower_order_nums_ = std::min(lower_order_nums_ + 1, config_.solver_order);
  ++*step_index_;
  return {prev_sample, {}};
}

// Each algorithm is x = a * sample + c0 * D0 + c1 * D1 + c2 * D2 + n * noise,
// with D1 and D2 differences of model outputs.
Tensor DPMSolverMultistepScheduler::update(int64_t order, const Tensor& sample, const Tensor& noise) const {
  int64_t i = *step_index_;
  Level t = level_at(i + 1), s0 = level_at(i);
  float h = t.lambda - s0.lambda;
  Tensor D0 = history(0), D1, D2;
  if (order == 2) {
    float r0 = (s0.lambda - level_at(i - 1).lambda) / h;
    D1 = 1 / r0 * (history(0) - history(1));
  } else if (order == 3) {
    Level s1 = level_at(i - 1), s2 = level_at(i - 2);
    float r0 = (s0.lambda - s1.lambda) / h, r1 = (s1.lambda - s2.lambda) / h;
    Tensor d0 = 1 / r0 * (history(0) - history(1)), d1 = 1 / r1 * (history(1) - history(2));
    D1 = d0 + r0 / (r0 + r1) * (d0 - d1);
    D2 = 1 / (r0 + r1) * (d0 - d1);
  }
  const std::string& algorithm = config_.algorithm_type;
  bool heun = config_.solver_type == "heun" || order == 3;  // the third order extends Heun's form
  float a = 0, c0 = 0, c1 = 0, c2 = 0, n = 0;
  if (algorithm == "dpmsolver++") {
    float e = rounded_exp(-h) - 1;
    a = t.sigma / s0.sigma;
    c0 = -(t.alpha * e);
    c1 = heun ? t.alpha * (e / h + 1) : -(0.5f * (t.alpha * e));
    c2 = -(t.alpha * ((e + h) / (h * h) - 0.5f));
  } else if (algorithm == "dpmsolver") {
    float e = rounded_exp(h) - 1;
    a = t.alpha / s0.alpha;
    c0 = -(t.sigma * e);
    c1 = heun ? -(t.sigma * (e / h - 1)) : -(0.5f * (t.sigma * e));
    c2 = -(t.sigma * ((e - h) / (h * h) - 0.5f));
  } else if (algorithm == "sde-dpmsolver++") {
    float e = 1 - rounded_exp(-2 * h);
    a = t.sigma / s0.sigma * rounded_exp(-h);
    c0 = t.alpha * e;
    c1 = heun ? t.alpha * (e / (-2 * h) + 1) : 0.5f * (t.alpha * e);
    c2 = t.alpha * ((e - 2 * h) / (4 * h * h) - 0.5f);
    n = t.sigma * std::sqrt(e);
  } else {
    float e = rounded_exp(h) - 1;
    a = t.alpha / s0.alpha;
    c0 = -(2 * (t.sigma * e));
    c1 = heun ? -(2 * (t.sigma * (e / h - 1))) : -(t.sigma * e);
    n = t.sigma * std::sqrt(rounded_exp(2 * h) - 1);
  }
  Tensor x = a * sample + c0 * D0;
  if (D1) x = x + c1 * D1;
  if (D2) x = x + c2 * D2;
  if (noise) x = x + n * noise;
  return x;
}

}  // namespace sf::diffusion
