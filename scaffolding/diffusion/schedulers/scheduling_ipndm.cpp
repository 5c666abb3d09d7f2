#include "scaffolding/diffusion/schedulers/scheduling_ipndm.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "scaffolding/core/error.h"
#include "scaffolding/diffusion/schedulers/factor.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion {

std::vector<RunState> IPNDMScheduler::run_state() { return {{"ets", &ets_}}; }

IPNDMScheduler::IPNDMScheduler(IPNDMConfig config) : config_(std::move(config)) {
  BetaConfig betas;
  betas.num_train_timesteps = config_.num_train_timesteps;
  betas.trained_betas = config_.trained_betas;
  check_betas(kName, betas);
  SF_CHECK(!config_.trained_betas || config_.trained_betas->size() > 1, kName,
           ": trained_betas must have at least two numbers, the last of which ends a run");
  num_train_timesteps_ = config_.num_train_timesteps;
  TimestepOptions all;
  all.num_inference_steps = num_train_timesteps_;
  make_schedule(all, num_train_timesteps_);
}

void IPNDMScheduler::make_schedule(const TimestepOptions& o, int64_t n) {
  constexpr auto kPi = std::numbers::pi_v<float>;
  betas_.clear();
  if (config_.trained_betas) {
    betas_.assign(config_.trained_betas->begin(), config_.trained_betas->end());
  } else {
    for (double step : linspace(1.0, 0.0, n + 1, kFloat32, Device::CPU).to_vector()) {
      const auto sine = float(std::sin(double(float(step) * kPi / 2)));
      betas_.push_back(sine * sine);
    }
    betas_.back() = 0;
  }
  alphas_.clear();
  std::vector<double> timesteps;
  for (float beta : betas_) {
    alphas_.push_back(std::sqrt(1 - beta * beta));
    timesteps.push_back(double(float(std::atan2(double(beta), double(alphas_.back()))) / kPi * 2));
  }
  timesteps.pop_back();
  num_inference_steps_ = n;
  set_schedule(timesteps, kFloat32, o.device);
  ets_.clear();
}

Tensor IPNDMScheduler::add_noise(const Tensor&, const Tensor&, const Tensor&) {
  fail<NotSupported>(kName, ": has no add_noise, as in diffusers");
}

StepOutput IPNDMScheduler::advance(const Tensor& model_output, double timestep, const Tensor& sample,
                                   const StepOptions&) {
  constexpr size_t kOrder = 4;
  start_index(timestep);
  const size_t at = place();
  SF_CHECK(at + 1 < betas_.size(), kName, ": the timesteps that were set are more than the ", betas_.size(),
           " noise levels");
  ets_.push_back(sample * betas_[at] + model_output * alphas_[at]);
  if (ets_.size() > kOrder) ets_.erase(ets_.begin(), ets_.end() - kOrder);
  auto e = [&](size_t back) { return ets_[ets_.size() - back]; };
  Tensor mean = e(1);
  if (ets_.size() == 2) mean = (3 * e(1) - e(2)) / 2;
  else if (ets_.size() == 3) mean = (23 * e(1) - 16 * e(2) + 5 * e(3)) / 12;
  else if (ets_.size() == kOrder) mean = (55 * e(1) - 59 * e(2) + 37 * e(3) - 9 * e(4)) * (1.0 / 24);
  const Tensor original = (sample - betas_[at] * mean) / std::max(alphas_[at], 1e-8f);
  ++*step_index_;
  return {alphas_[at + 1] * original + mean * betas_[at + 1], {}};
}

}  // namespace sf::diffusion
