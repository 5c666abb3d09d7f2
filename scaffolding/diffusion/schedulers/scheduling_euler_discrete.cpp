#include "scaffolding/diffusion/schedulers/scheduling_euler_discrete.h"

#include <cmath>

#include "scaffolding/core/error.h"
#include "scaffolding/diffusion/schedulers/factor.h"
#include "scaffolding/diffusion/schedulers/timestep_spacing.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion {

Fields EulerDiscreteConfig::fields() {
  Fields f = BetaConfig::fields();
  f.insert(f.end(), {{"prediction_type", &prediction_type},
                     {"interpolation_type", &interpolation_type},
                     {"use_karras_sigmas", &use_karras_sigmas},
                     {"use_exponential_sigmas", &use_exponential_sigmas},
                     {"use_beta_sigmas", &use_beta_sigmas},
                     {"sigma_min", &sigma_min},
                     {"sigma_max", &sigma_max},
                     {"timestep_spacing", &timestep_spacing},
                     {"timestep_type", &timestep_type},
                     {"steps_offset", &steps_offset},
                     {"rescale_betas_zero_snr", &rescale_betas_zero_snr},
                     {"final_sigmas_type", &final_sigmas_type}});
  return f;
}

EulerDiscreteScheduler::EulerDiscreteScheduler(EulerDiscreteConfig config) : config_(std::move(config)) {
  check_betas(kName, config_);
  check_one_of(kName, "prediction_type", config_.prediction_type,
               {"epsilon", "sample", "original_sample", "v_prediction"});
  check_one_of(kName, "interpolation_type", config_.interpolation_type, {"linear", "log_linear"});
  check_one_of(kName, "timestep_spacing", config_.timestep_spacing, {"linspace", "leading", "trailing"});
  check_one_of(kName, "timestep_type", config_.timestep_type, {"discrete", "continuous"});
  check_one_of(kName, "final_sigmas_type", config_.final_sigmas_type, {"zero", "sigma_min"});
  check_sigma_range(kName, config_.sigma_min, config_.sigma_max);
  sigma_curve(kName, config_.use_karras_sigmas, config_.use_exponential_sigmas, config_.use_beta_sigmas);
  set_training_sigmas(config_, config_.rescale_betas_zero_snr);
  if (!continuous()) return;
  std::vector<double> timesteps;
  for (size_t i = 0; i + 1 < sigma_values_.size(); ++i) timesteps.push_back(double(0.25f * std::log(sigma_values_[i])));
  set_schedule(timesteps, kFloat32);
}

void EulerDiscreteScheduler::make_schedule(const TimestepOptions& o, int64_t n) {
  SF_CHECK(o.num_inference_steps.has_value() + o.timesteps.has_value() + o.sigmas.has_value() == 1, kName,
           ": takes one of num_inference_steps, timesteps and sigmas");
  SigmaCurve curve =
      sigma_curve(kName, config_.use_karras_sigmas, config_.use_exponential_sigmas, config_.use_beta_sigmas);
  SF_CHECK(!o.timesteps || (curve == SigmaCurve::None && !continuous()), kName,
           ": takes no timesteps where the config asks for Karras, exponential or beta sigmas or continuous timesteps");
  const std::vector<float>& table = training_sigmas_;
  std::vector<float> logs = log_of(table);
  std::vector<double> timesteps, levels;
  std::vector<float> sigmas;
  if (o.sigmas) {
    SF_CHECK(o.sigmas->size() > 1, kName, ": sigmas must have at least two entries, the last of which ends the run");
    sigmas.assign(o.sigmas->begin(), o.sigmas->end());
    for (size_t i = 0; i + 1 < sigmas.size(); ++i) timesteps.push_back(sigma_to_timestep(sigmas[i], logs));
  } else {
    timesteps = o.timesteps ? float_rounded(*o.timesteps)
                            : float_rounded(spaced_timesteps({kName, config_.timestep_spacing, num_train_timesteps_, n,
                                                              config_.steps_offset, false}));
    if (config_.interpolation_type == "linear") {
      levels = interpolate(timesteps, table);
    } else {
      Tensor line = exp(linspace(logs.back(), logs.front(), int64_t(timesteps.size()) + 1, kFloat32, Device::CPU));
      levels = line.to_vector();
    }
    if (curve != SigmaCurve::None) {
      levels = curve_sigmas(curve, config_.sigma_min.value_or(levels.back()),
                            config_.sigma_max.value_or(levels.front()), int64_t(timesteps.size()));
      timesteps.clear();
      for (double s : levels) timesteps.push_back(sigma_to_timestep(s, logs));
    }
    sigmas.assign(levels.begin(), levels.end());
    sigmas.push_back(config_.final_sigmas_type == "zero" ? 0 : table.front());
  }
  if (continuous()) {
    timesteps.clear();
    for (size_t i = 0; i + 1 < sigmas.size(); ++i) timesteps.push_back(double(0.25f * std::log(sigmas[i])));
  }
  num_inference_steps_ = int64_t(timesteps.size());
  set_schedule(timesteps, kFloat32, o.device);
  set_sigmas(sigmas);
}

StepOutput EulerDiscreteScheduler::advance(const Tensor& model_output, double timestep, const Tensor& input,
                                           const StepOptions& o) {
  start_index(timestep);
  Tensor sample = input.to(kFloat32);
  float sigma = sigma_values_[place()];
  double gamma = 0;
  if (o.s_tmin <= double(sigma) && double(sigma) <= o.s_tmax)
    gamma = std::min(o.s_churn / double(sigma_values_.size() - 1), std::sqrt(2.0) - 1);
  float sigma_hat = sigma * float(gamma + 1);
  if (gamma > 0) {
    Tensor noise = randn_tensor(model_output.shape(), o.generator, model_output.device(), model_output.dtype());
    sample = sample + noise * o.s_noise * std::sqrt(sigma_hat * sigma_hat - sigma * sigma);
  }
  Tensor original = sigma_prediction(config_.prediction_type, model_output, sample, sigma, sigma_hat);
  Tensor derivative = (sample - original) / sigma_hat;
  float dt = sigma_values_[place() + 1] - sigma_hat;
  Tensor prev_sample = (sample + derivative * dt).to(model_output.dtype());
  ++*step_index_;
  return {prev_sample, original};
}

}  // namespace sf::diffusion
