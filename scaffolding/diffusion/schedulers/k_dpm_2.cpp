#include "scaffolding/diffusion/schedulers/k_dpm_2.h"

#include <cmath>

#include "scaffolding/core/error.h"
#include "scaffolding/diffusion/schedulers/factor.h"
#include "scaffolding/diffusion/schedulers/multistep.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion {

Fields KDPM2Config::fields() {
  Fields f = BetaConfig::fields();
  f.insert(f.end(), {{"use_karras_sigmas", &use_karras_sigmas},
                     {"use_exponential_sigmas", &use_exponential_sigmas},
                     {"use_beta_sigmas", &use_beta_sigmas},
                     {"prediction_type", &prediction_type},
                     {"timestep_spacing", &timestep_spacing},
                     {"steps_offset", &steps_offset}});
  return f;
}

KDPM2Scheduler::KDPM2Scheduler(KDPM2Config config) : config_(std::move(config)) {}

std::vector<RunState> KDPM2Scheduler::run_state() { return {{"sample", &sample_}}; }

void KDPM2Scheduler::set_up(const char* who) {
  check_betas(who, config_);
  check_one_of(who, "prediction_type", config_.prediction_type, {"epsilon", "v_prediction"});
  check_one_of(who, "timestep_spacing", config_.timestep_spacing, {"linspace", "leading", "trailing"});
  set_training_sigmas(config_, false);
  TimestepOptions all;
  all.num_inference_steps = num_train_timesteps_;
  make_schedule(all, num_train_timesteps_);
}

float KDPM2Scheduler::middle(float a, float b) {
  const float from = rounded_log(a), to = rounded_log(b);
  return rounded_exp(to - (to - from) * 0.5f);
}

void KDPM2Scheduler::make_schedule(const TimestepOptions& o, int64_t n) {
  const SigmaCurve curve =
      sigma_curve(name(), config_.use_karras_sigmas, config_.use_exponential_sigmas, config_.use_beta_sigmas);
  const Spaced spaced =
      spaced_levels(config_.timestep_spacing, n, config_.steps_offset, curve, curve == SigmaCurve::Karras);
  std::vector<float> once(spaced.levels.begin(), spaced.levels.end());
  once.push_back(0);
  const auto logs = log_of(training_sigmas_);
  // Every timestep but the first comes after one in between; noise levels are each listed twice.
  std::vector<double> timesteps{spaced.timesteps.front()};
  std::vector<float> sigmas{once.front()};
  levels_.clear();
  for (size_t i = 0; i + 1 < once.size(); ++i) {
    const bool last = i + 2 == once.size();
    levels_.push_back(last ? Levels{0, 0, 0} : levels(once[i], once[i + 1]));
    if (!last) {
      timesteps.push_back(sigma_to_timestep(levels_.back().between, logs));
      timesteps.push_back(spaced.timesteps[i + 1]);
    }
    sigmas.insert(sigmas.end(), 2, once[i + 1]);
  }
  sigmas.push_back(0);
  num_inference_steps_ = n;
  set_schedule(timesteps, kFloat32, o.device);
  set_sigmas(sigmas);
  sample_ = {};
}

Tensor KDPM2Scheduler::scale_model_input(const Tensor& sample, double timestep) {
  check_floating(name(), "sample", sample);
  start_index(timestep);
  const int64_t at = *step_index_;
  const float sigma = sample_ ? levels_[step_at(std::max<int64_t>(at - 1, 0))].between : sigma_at(at);
  return sample / std::sqrt(sigma * sigma + 1);
}

StepOutput KDPM2Scheduler::advance(const Tensor& model_output, double timestep, const Tensor& input,
                                   const StepOptions& o) {
  start_index(timestep);
  const bool first = !sample_;
  SF_CHECK_AS(RuntimeError, first || *step_index_ > 0, name(), ": a run cannot begin with the second half of a step");
  const int64_t at = *step_index_ - (first ? 0 : 1);
  const Levels& step = levels_[step_at(at)];
  const float sigma = sigma_at(at), here = first ? sigma : step.between;
  const Tensor original = sigma_prediction(config_.prediction_type, model_output, input, here, here),
               derivative = (input - original) / here;
  Tensor prev_sample;
  if (first) {
    sample_ = input;
    prev_sample = input + derivative * (step.between - sigma);
  } else {
    prev_sample = sample_ + derivative * (step.down - sigma);
    sample_ = {};
    if (adds_noise()) {
      const Tensor noise = randn_tensor(model_output.shape(), o.generator, model_output.device(), model_output.dtype());
      prev_sample = prev_sample + noise * step.up;
    }
  }
  ++*step_index_;
  return {prev_sample, original};
}

}  // namespace sf::diffusion
