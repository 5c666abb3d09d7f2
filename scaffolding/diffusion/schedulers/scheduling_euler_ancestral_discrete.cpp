#include "scaffolding/diffusion/schedulers/scheduling_euler_ancestral_discrete.h"

#include <algorithm>
#include <cmath>

#include "scaffolding/core/error.h"
#include "scaffolding/diffusion/schedulers/factor.h"
#include "scaffolding/diffusion/schedulers/timestep_spacing.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion {

Fields EulerAncestralDiscreteConfig::fields() {
  Fields f = BetaConfig::fields();
  f.insert(f.end(), {{"prediction_type", &prediction_type},
                     {"timestep_spacing", &timestep_spacing},
                     {"steps_offset", &steps_offset},
                     {"rescale_betas_zero_snr", &rescale_betas_zero_snr}});
  return f;
}

EulerAncestralDiscreteScheduler::EulerAncestralDiscreteScheduler(EulerAncestralDiscreteConfig config)
    : config_(std::move(config)) {
  check_betas(kName, config_);
  check_one_of(kName, "prediction_type", config_.prediction_type, {"epsilon", "v_prediction"});
  check_one_of(kName, "timestep_spacing", config_.timestep_spacing, {"linspace", "leading", "trailing"});
  set_training_sigmas(config_, config_.rescale_betas_zero_snr);
}

void EulerAncestralDiscreteScheduler::make_schedule(const TimestepOptions& o, int64_t n) {
  auto timesteps = float_rounded(
      spaced_timesteps({kName, config_.timestep_spacing, num_train_timesteps_, n, config_.steps_offset, false}));
  auto levels = interpolate(timesteps, training_sigmas_);
  std::vector<float> sigmas(levels.begin(), levels.end());
  sigmas.push_back(0);
  num_inference_steps_ = n;
  set_schedule(timesteps, kFloat32, o.device);
  set_sigmas(sigmas);
}

StepOutput EulerAncestralDiscreteScheduler::advance(const Tensor& model_output, double timestep, const Tensor& input,
                                                    const StepOptions& o) {
  start_index(timestep);
  Tensor sample = input.to(kFloat32);
  float from = sigma_values_[place()], to = sigma_values_[place() + 1];
  Tensor original = sigma_prediction(config_.prediction_type, model_output, sample, from, from);
  // The step goes down to less noise than `to` has; noise of variance up^2 makes up for it.
  // From a nearly infinite noise level up rounds to more than `to`, where diffusers' samples become NaN.
  float up = std::min(std::sqrt(to * to * (from * from - to * to) / (from * from)), to);
  float down = std::sqrt(to * to - up * up);
  Tensor derivative = (sample - original) / from;
  Tensor noise = randn_tensor(model_output.shape(), o.generator, model_output.device(), model_output.dtype());
  Tensor prev_sample = sample + derivative * (down - from) + noise * up;
  ++*step_index_;
  return {prev_sample.to(model_output.dtype()), original};
}

}  // namespace sf::diffusion
