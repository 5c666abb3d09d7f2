#include "scaffolding/diffusion/schedulers/edm.h"

#include <algorithm>
#include <cmath>

#include "scaffolding/core/error.h"
#include "scaffolding/diffusion/schedulers/beta_schedule.h"
#include "scaffolding/diffusion/schedulers/factor.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion {

void EDMConfig::check(const char* who) const {
  BetaConfig training;
  training.num_train_timesteps = num_train_timesteps;
  check_betas(who, training);
  check_sigma_range(who, sigma_min, sigma_max);
  SF_CHECK(sigma_data > 0 && std::isfinite(sigma_data), who, ": sigma_data must be positive, got ", sigma_data);
  SF_CHECK(rho > 0 && std::isfinite(rho), who, ": rho must be positive, got ", rho);
  check_one_of(who, "sigma_schedule", sigma_schedule, {"karras", "exponential"});
  check_one_of(who, "prediction_type", prediction_type, {"epsilon", "v_prediction"});
  check_one_of(who, "final_sigmas_type", final_sigmas_type, {"zero", "sigma_min"});
}

template <class T> std::vector<float> EDMConfig::levels(const std::vector<double>& shares) const {
  std::vector<float> out;
  if (sigma_schedule == "exponential") {
    for (double x :
         linspace(std::log(sigma_min), std::log(sigma_max), int64_t(shares.size()), kFloat32, Device::CPU).to_vector())
      out.push_back(float(std::exp(x)));
    std::reverse(out.begin(), out.end());
    return out;
  }
  const double low = std::pow(sigma_min, 1 / rho), high = std::pow(sigma_max, 1 / rho);
  for (double share : shares) {
    const T base = T(high) + T(T(share) * T(low - high));
    out.push_back(float(std::pow(double(base), rho)));
  }
  return out;
}
template std::vector<float> EDMConfig::levels<float>(const std::vector<double>&) const;
template std::vector<float> EDMConfig::levels<double>(const std::vector<double>&) const;

std::vector<float> EDMConfig::with_end(std::vector<float> levels) const {
  levels.push_back(final_sigmas_type == "zero" ? 0 : levels.back());
  return levels;
}

std::vector<double> EDMConfig::timesteps_of(const std::vector<float>& levels) const {
  std::vector<double> out;
  for (float s : levels) out.push_back(double(0.25f * float(std::log(double(s)))));
  return out;
}

Tensor EDMConfig::scaled_input(const Tensor& sample, float sigma) const {
  return sample * (1 / std::sqrt(sigma * sigma + float(sigma_data * sigma_data)));
}

Tensor EDMConfig::original(const Tensor& model_output, const Tensor& sample, float sigma) const {
  const auto data = float(sigma_data), power = float(sigma_data * sigma_data), both = sigma * sigma + power;
  const float skip = power / both, out = (prediction_type == "epsilon" ? sigma : -sigma) * data / std::sqrt(both);
  return skip * sample + out * model_output;
}

double EDMConfig::initial_sigma() const { return std::sqrt(sigma_max * sigma_max + 1); }

}  // namespace sf::diffusion
