#include "scaffolding/diffusion/schedulers/scheduling_edm_euler.h"

#include <algorithm>
#include <cmath>

#include "scaffolding/core/error.h"
#include "scaffolding/diffusion/schedulers/factor.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion {

Fields EDMEulerConfig::fields() {
  return {{"sigma_min", &sigma_min},
          {"sigma_max", &sigma_max},
          {"sigma_data", &sigma_data},
          {"sigma_schedule", &sigma_schedule},
          {"num_train_timesteps", &num_train_timesteps},
          {"prediction_type", &prediction_type},
          {"rho", &rho},
          {"final_sigmas_type", &final_sigmas_type}};
}

EDMEulerScheduler::EDMEulerScheduler(EDMEulerConfig config) : config_(std::move(config)) {
  config_.check(kName);
  num_train_timesteps_ = config_.num_train_timesteps;
  std::vector<double> shares;
  for (int64_t i = 0; i <= num_train_timesteps_; ++i) shares.push_back(double(i) / double(num_train_timesteps_));
  take_levels(config_.levels<double>(shares), {});
}

void EDMEulerScheduler::take_levels(const std::vector<float>& levels, Device device) {
  set_schedule(config_.timesteps_of(levels), kFloat32, device);
  set_sigmas(config_.with_end(levels));
}

void EDMEulerScheduler::make_schedule(const TimestepOptions& o, int64_t n) {
  if (o.sigmas)
    for (double share : *o.sigmas)
      SF_CHECK(share <= 1, kName, ": sigmas are shares of the way from sigma_max to sigma_min, got ", share);
  const auto levels = config_.levels<double>(o.sigmas ? *o.sigmas : linspace64(0, 1, n));
  num_inference_steps_ = int64_t(levels.size());
  take_levels(levels, o.device);
}

Tensor EDMEulerScheduler::scale_model_input(const Tensor& sample, double timestep) {
  check_floating(kName, "sample", sample);
  start_index(timestep);
  return config_.scaled_input(sample, sigma_at(*step_index_));
}

StepOutput EDMEulerScheduler::advance(const Tensor& model_output, double timestep, const Tensor& input,
                                      const StepOptions& o) {
  start_index(timestep);
  Tensor sample = input.to(kFloat32);
  const float sigma = sigma_at(*step_index_);
  double gamma = 0;
  if (o.s_tmin <= double(sigma) && double(sigma) <= o.s_tmax)
    gamma = std::min(o.s_churn / double(sigma_values_.size() - 1), std::sqrt(2.0) - 1);
  const float sigma_hat = sigma * float(gamma + 1);
  if (gamma > 0) {
    const Tensor noise = randn_tensor(model_output.shape(), o.generator, model_output.device(), model_output.dtype());
    sample = sample + noise * o.s_noise * std::sqrt(sigma_hat * sigma_hat - sigma * sigma);
  }
  if (o.pred_original_sample) check_shape(kName, "pred_original_sample", o.pred_original_sample, input.shape());
  const Tensor original =
      o.pred_original_sample ? o.pred_original_sample : config_.original(model_output, sample, sigma_hat);
  const Tensor derivative = (sample - original) / sigma_hat;
  const Tensor prev_sample = sample + derivative * (sigma_at(*step_index_ + 1) - sigma_hat);
  ++*step_index_;
  return {prev_sample.to(model_output.dtype()), original};
}

}  // namespace sf::diffusion
