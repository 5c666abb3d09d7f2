#include "scaffolding/diffusion/schedulers/scheduling_heun_discrete.h"

#include <cmath>

#include "scaffolding/core/error.h"
#include "scaffolding/diffusion/schedulers/factor.h"
#include "scaffolding/diffusion/schedulers/timestep_spacing.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion {

Fields HeunDiscreteConfig::fields() {
  Fields f = BetaConfig::fields();
  f.insert(f.end(), {{"prediction_type", &prediction_type},
                     {"use_karras_sigmas", &use_karras_sigmas},
                     {"use_exponential_sigmas", &use_exponential_sigmas},
                     {"use_beta_sigmas", &use_beta_sigmas},
                     {"clip_sample", &clip_sample},
                     {"clip_sample_range", &clip_sample_range},
                     {"timestep_spacing", &timestep_spacing},
                     {"steps_offset", &steps_offset}});
  return f;
}

std::vector<RunState> HeunDiscreteScheduler::run_state() {
  return {{"prev_derivative", &prev_derivative_}, {"sample", &sample_}};
}

HeunDiscreteScheduler::HeunDiscreteScheduler(HeunDiscreteConfig config) : config_(std::move(config)) {
  check_betas(kName, config_);
  check_one_of(kName, "prediction_type", config_.prediction_type, {"epsilon", "sample", "v_prediction"});
  check_one_of(kName, "timestep_spacing", config_.timestep_spacing, {"linspace", "leading", "trailing"});
  check_clipping(kName, config_.clip_sample_range, 1, 1);
  sigma_curve(kName, config_.use_karras_sigmas, config_.use_exponential_sigmas, config_.use_beta_sigmas);
  set_training_sigmas(config_, false);
  TimestepOptions all;
  all.num_inference_steps = num_train_timesteps_;
  make_schedule(all, num_train_timesteps_);
  num_inference_steps_.reset();
}

void HeunDiscreteScheduler::make_schedule(const TimestepOptions& o, int64_t n) {
  SF_CHECK(!(o.num_inference_steps && o.timesteps), kName, ": takes num_inference_steps or timesteps, not both");
  SigmaCurve curve =
      sigma_curve(kName, config_.use_karras_sigmas, config_.use_exponential_sigmas, config_.use_beta_sigmas);
  SF_CHECK(!o.timesteps || curve == SigmaCurve::None, kName,
           ": takes no timesteps where the config asks for Karras, exponential or beta sigmas");
  auto timesteps = o.timesteps ? float_rounded(*o.timesteps)
                               : float_rounded(spaced_timesteps({kName, config_.timestep_spacing, num_train_timesteps_,
                                                                 n, config_.steps_offset, false}));
  auto levels = interpolate(timesteps, training_sigmas_);
  if (curve != SigmaCurve::None) {
    auto logs = log_of(training_sigmas_);
    levels = curve_sigmas(curve, levels.back(), levels.front(), int64_t(levels.size()));
    timesteps.clear();
    for (double s : levels) timesteps.push_back(sigma_to_timestep(s, logs));
  }
  // Every noise level but the first is visited twice: as the end of one step, and as the beginning of the next.
  std::vector<double> twice{timesteps.front()};
  std::vector<float> sigmas{float(levels.front())};
  for (size_t i = 1; i < timesteps.size(); ++i) {
    twice.insert(twice.end(), 2, timesteps[i]);
    sigmas.insert(sigmas.end(), 2, float(levels[i]));
  }
  sigmas.push_back(0);
  num_inference_steps_ = int64_t(timesteps.size());
  set_schedule(twice, kFloat32, o.device);
  set_sigmas(sigmas);
  prev_derivative_ = sample_ = {};
}

StepOutput HeunDiscreteScheduler::advance(const Tensor& model_output, double timestep, const Tensor& input,
                                          const StepOptions&) {
  start_index(timestep);
  bool first = !prev_derivative_;
  SF_CHECK_AS(RuntimeError, first || *step_index_ > 0, kName, ": a run cannot begin with the second half of a step");
  float sigma = sigma_values_[first ? place() : place() - 1], sigma_next = sigma_values_[first ? place() + 1 : place()];
  float here = first ? sigma : sigma_next;
  Tensor original = sigma_prediction(config_.prediction_type, model_output, input, here, here);
  if (config_.clip_sample) original = clip_sample(original, config_.clip_sample_range);
  Tensor derivative = (input - original) / here, sample = input;
  if (first) {
    dt_ = sigma_next - sigma;
    prev_derivative_ = derivative;
    sample_ = sample;
  } else {
    derivative = (prev_derivative_ + derivative) / 2;
    sample = sample_;
    prev_derivative_ = sample_ = {};
  }
  ++*step_index_;
  return {sample + derivative * dt_, original};
}

}  // namespace sf::diffusion
