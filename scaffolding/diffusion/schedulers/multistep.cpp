#include "scaffolding/diffusion/schedulers/multistep.h"

#include <algorithm>
#include <cmath>

#include "scaffolding/core/error.h"
#include "scaffolding/diffusion/schedulers/factor.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion {

void MultistepScheduler::set_up_levels(const BetaConfig& config, bool rescale_zero_snr, bool flow,
                                       int64_t solver_order) {
  set_training_sigmas(config, rescale_zero_snr);
  flow_ = flow;
  history_.resize(size_t(solver_order));
}

MultistepScheduler::Level MultistepScheduler::level_of(float sigma) const {
  float alpha = flow_ ? 1 - sigma : 1 / std::sqrt(sigma * sigma + 1);
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
  if (flow_) return (1 - sigma) * original_samples + sigma * noise;
  Tensor alpha = 1 / sqrt(sigma * sigma + 1);
  return alpha * original_samples + sigma * alpha * noise;
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
