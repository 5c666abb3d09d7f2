#include "scaffolding/diffusion/schedulers/multistep.h"

#include <algorithm>
#include <cmath>

#include "scaffolding/core/error.h"
#include "scaffolding/diffusion/schedulers/factor.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion {

std::vector<RunState> MultistepScheduler::run_state() {
  return {{"model_outputs", &history_, history_.size()}, {"lower_order_nums", &lower_order_nums_, history_.size()}};
}

void MultistepScheduler::set_up_levels(const BetaConfig& config, bool rescale_zero_snr, bool flow,
                                       int64_t solver_order) {
  set_training_sigmas(config, rescale_zero_snr);
  flow_ = flow;
  history_.resize(size_t(solver_order));
}

MultistepScheduler::Level MultistepScheduler::level_of(float sigma) const {
  float alpha = unscaled_ ? 1 : flow_ ? 1 - sigma : 1 / std::sqrt(sigma * sigma + 1);
  float s = flow_ ? sigma : sigma * alpha;
  return {alpha, s, rounded_log(alpha) - rounded_log(s)};
}

int64_t MultistepScheduler::index_for_timestep(double timestep) const {
  if (std::find(timestep_values_.begin(), timestep_values_.end(), timestep) == timestep_values_.end())
    return int64_t(timestep_values_.size()) - 1;
  return SigmaScheduler::index_for_timestep(timestep);
}

Tensor MultistepScheduler::original_of(const std::string& prediction_type, const Tensor& model_output,
                                       const Tensor& sample) const {
  float sigma = sigma_values_[place()];
  if (prediction_type == "flow_prediction") return sample - sigma * model_output;
  Level at = level_of(sigma);
  return predicted_original(prediction_type, model_output, sample, at.alpha, at.sigma);
}

void MultistepScheduler::keep_samples(const Tensor& places) {
  for (Tensor& t : history_) keep_places(t, places);
}

void MultistepScheduler::restart() {
  for (Tensor& t : history_) t = {};
  lower_order_nums_ = 0;
}

void MultistepScheduler::remember(const Tensor& output) {
  std::rotate(history_.begin(), history_.begin() + 1, history_.end());
  history_.back() = output;
}

Tensor MultistepScheduler::add_noise(const Tensor& original_samples, const Tensor& noise, const Tensor& timesteps) {
  check_noise(original_samples, noise);
  std::vector<double> values;
  for (int64_t i : indices_for(timesteps)) values.push_back(double(sigma_at(i)));
  Tensor sigma = per_sample(name(), values, original_samples);
  if (unscaled_) return original_samples + sigma * noise;
  if (flow_) return (1 - sigma) * original_samples + sigma * noise;
  Tensor alpha = 1 / sqrt(sigma * sigma + 1);
  return alpha * original_samples + sigma * alpha * noise;
}

int64_t MultistepScheduler::clipped_end(double lambda_min_clipped) const {
  int64_t last = num_train_timesteps_;
  for (size_t i = alphas_cumprod_.size(); i-- > 1 && last > 1; --last) {
    const auto alpha = float(alphas_cumprod_[i]);
    if (std::log(std::sqrt(alpha)) - std::log(std::sqrt(1 - alpha)) >= float(lambda_min_clipped)) break;
  }
  return last;
}

std::pair<std::vector<double>, float> MultistepScheduler::dpm_levels(SigmaCurve curve, bool rounded, bool flow,
                                                                     double shift, int64_t n,
                                                                     std::vector<double>& timesteps) const {
  const std::vector<float>& table = training_sigmas_;
  std::vector<double> levels;
  if (curve != SigmaCurve::None) {
    levels = curve_sigmas(curve, double(table.front()), double(table.back()), n);
    const auto logs = log_of(table);
    timesteps.clear();
    for (double s : levels) {
      const double t = sigma_to_timestep(s, logs);
      timesteps.push_back(rounded ? std::nearbyint(t) : t);
    }
  } else if (flow) {
    levels = linspace64(1, 1.0 / double(num_train_timesteps_), n + 1);
    for (double& s : levels) s = 1 - s;
    levels = flow_shifted(shift, levels);
    std::reverse(levels.begin(), levels.end());
    levels.pop_back();
    timesteps = levels;
    for (double& t : timesteps) t *= double(num_train_timesteps_);
  } else {
    levels = interpolate(timesteps, table);
  }
  return {std::move(levels), table.front()};
}

MultistepScheduler::DPMStep MultistepScheduler::dpm_step(const std::string& algorithm, bool heun, const Level& t,
                                                         const Level& s, float h) {
  DPMStep step;
  if (algorithm == "dpmsolver++") {
    float e = rounded_exp(-h) - 1;
    step.a = t.sigma / s.sigma;
    step.c0 = -(t.alpha * e);
    step.c1 = heun ? t.alpha * (e / h + 1) : -(0.5f * (t.alpha * e));
    step.c2 = -(t.alpha * ((e + h) / (h * h) - 0.5f));
  } else if (algorithm == "dpmsolver") {
    float e = rounded_exp(h) - 1;
    step.a = t.alpha / s.alpha;
    step.c0 = -(t.sigma * e);
    step.c1 = heun ? -(t.sigma * (e / h - 1)) : -(0.5f * (t.sigma * e));
    step.c2 = -(t.sigma * ((e - h) / (h * h) - 0.5f));
  } else if (algorithm == "sde-dpmsolver++") {
    float e = 1 - rounded_exp(-2 * h);
    step.a = t.sigma / s.sigma * rounded_exp(-h);
    step.c0 = t.alpha * e;
    step.c1 = heun ? t.alpha * (e / (-2 * h) + 1) : 0.5f * (t.alpha * e);
    step.c2 = t.alpha * ((e - 2 * h) / (4 * h * h) - 0.5f);
    step.n = t.sigma * std::sqrt(e);
  } else {
    float e = rounded_exp(h) - 1;
    step.a = t.alpha / s.alpha;
    step.c0 = -(2 * (t.sigma * e));
    step.c1 = heun ? -(2 * (t.sigma * (e / h - 1))) : -(t.sigma * e);
    step.n = t.sigma * std::sqrt(rounded_exp(2 * h) - 1);
  }
  return step;
}

Tensor MultistepScheduler::DPMStep::operator()(const Tensor& sample, const Tensor& D0, const Tensor& D1,
                                               const Tensor& D2, const Tensor& noise) const {
  Tensor x = a * sample + c0 * D0;
  if (D1) x = x + c1 * D1;
  if (D2) x = x + c2 * D2;
  if (noise) x = x + n * noise;
  return x;
}

Tensor MultistepScheduler::dpm_multistep(const std::string& algorithm, const std::string& solver_type, int64_t order,
                                         const Tensor& sample, const Tensor& noise) const {
  int64_t i = *step_index_;
  Level t = level_at(i + 1), s0 = level_at(i);
  float h = t.lambda - s0.lambda;
  Tensor D1, D2;
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
  return dpm_step(algorithm, solver_type == "heun" || order == 3, t, s0, h)(sample, history(0), D1, D2, noise);
}

std::vector<double> time_shifted(const std::string& type, double mu, std::vector<double> t) {
  double a = type == "exponential" ? std::exp(mu) : mu;
  for (double& x : t) x = a / (a + (1 / x - 1));
  return t;
}

std::vector<double> stretched_to(double terminal, std::vector<double> t) {
  double scale = (1 - t.back()) / (1 - terminal);
  SF_CHECK(scale != 0, "set_timesteps: shift_terminal=", terminal, " needs a schedule that ends below 1, got ",
           t.size(), " steps; take more");
  for (double& x : t) x = 1 - (1 - x) / scale;
  return t;
}

std::vector<double> flow_shifted(double shift, std::vector<double> sigmas) {
  for (double& s : sigmas) s = shift * s / (1 + (shift - 1) * s);
  return sigmas;
}

}  // namespace sf::diffusion
