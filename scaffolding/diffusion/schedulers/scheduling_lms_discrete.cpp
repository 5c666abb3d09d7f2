#include "scaffolding/diffusion/schedulers/scheduling_lms_discrete.h"

#include <algorithm>
#include <cmath>

#include "scaffolding/core/error.h"
#include "scaffolding/diffusion/schedulers/factor.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion {

namespace {
constexpr int64_t kMostOrder = 8;  // to which four points of Gauss and Legendre integrate the polynomial exactly
}

Fields LMSDiscreteConfig::fields() {
  Fields f = BetaConfig::fields();
  f.insert(f.end(), {{"use_karras_sigmas", &use_karras_sigmas},
                     {"use_exponential_sigmas", &use_exponential_sigmas},
                     {"use_beta_sigmas", &use_beta_sigmas},
                     {"prediction_type", &prediction_type},
                     {"timestep_spacing", &timestep_spacing},
                     {"steps_offset", &steps_offset}});
  return f;
}

std::vector<RunState> LMSDiscreteScheduler::run_state() { return {{"derivatives", &derivatives_}}; }

LMSDiscreteScheduler::LMSDiscreteScheduler(LMSDiscreteConfig config) : config_(std::move(config)) {
  check_betas(kName, config_);
  check_one_of(kName, "prediction_type", config_.prediction_type, {"epsilon", "sample", "v_prediction"});
  check_one_of(kName, "timestep_spacing", config_.timestep_spacing, {"linspace", "leading", "trailing"});
  set_training_sigmas(config_, false);
  TimestepOptions all;
  all.num_inference_steps = num_train_timesteps_;
  make_schedule(all, num_train_timesteps_);
}

void LMSDiscreteScheduler::make_schedule(const TimestepOptions& o, int64_t n) {
  const SigmaCurve curve =
      sigma_curve(kName, config_.use_karras_sigmas, config_.use_exponential_sigmas, config_.use_beta_sigmas);
  const Spaced spaced = spaced_levels(config_.timestep_spacing, n, config_.steps_offset, curve, false);
  std::vector<float> sigmas(spaced.levels.begin(), spaced.levels.end());
  sigmas.push_back(0);
  num_inference_steps_ = n;
  set_schedule(spaced.timesteps, kFloat32, o.device);
  set_sigmas(sigmas);
  derivatives_.clear();
}

double LMSDiscreteScheduler::coefficient(int64_t order, int64_t at, int64_t back) const {
  constexpr double kPoints[] = {0.861136311594052575224, 0.339981043584856264803};
  constexpr double kWeights[] = {0.347854845137453857373, 0.652145154862546142627};
  const double from = double(sigma_at(at)), to = double(sigma_at(at + 1)), middle = (from + to) / 2,
               half = (to - from) / 2, here = double(sigma_at(at - back));
  double sum = 0;
  for (int i = 0; i < 4; ++i) {
    const double tau = middle + half * kPoints[i / 2] * (i % 2 ? 1 : -1);
    double product = kWeights[i / 2];
    for (int64_t k = 0; k < order; ++k)
      if (k != back) product *= (tau - double(sigma_at(at - k))) / (here - double(sigma_at(at - k)));
    sum += product;
  }
  return sum * half;
}

StepOutput LMSDiscreteScheduler::advance(const Tensor& model_output, double timestep, const Tensor& sample,
                                         const StepOptions& o) {
  SF_CHECK(o.order >= 1 && o.order <= kMostOrder, kName, ": order must be from 1 to ", kMostOrder, ", got ", o.order);
  start_index(timestep);
  const int64_t at = *step_index_;
  const float sigma = sigma_at(at);
  const Tensor original = sigma_prediction(config_.prediction_type, model_output, sample, sigma, sigma);
  derivatives_.push_back((sample - original) / sigma);
  if (int64_t(derivatives_.size()) > o.order) derivatives_.erase(derivatives_.begin());
  const int64_t order = std::min(at + 1, o.order), known = std::min(order, int64_t(derivatives_.size()));
  Tensor change;
  for (int64_t back = 0; back < known; ++back) {
    const Tensor part = derivatives_[derivatives_.size() - 1 - size_t(back)] * coefficient(order, at, back);
    change = change ? change + part : part;
  }
  ++*step_index_;
  return {sample + change, original};
}

}  // namespace sf::diffusion
