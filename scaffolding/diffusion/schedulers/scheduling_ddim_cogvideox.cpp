#include "scaffolding/diffusion/schedulers/scheduling_ddim_cogvideox.h"

#include <cmath>

#include "scaffolding/diffusion/schedulers/factor.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion {

CogVideoXDDIMScheduler::CogVideoXDDIMScheduler(CogVideoXConfig config) {
  config_ = std::move(config);
  set_up_shifted(kName);
}

StepOutput CogVideoXDDIMScheduler::advance(const Tensor& model_output, double timestep, const Tensor& sample,
                                           const StepOptions&) {
  int64_t t = training_timestep(timestep);
  return in_float64_ ? advance_in<double>(model_output, t, sample) : advance_in<float>(model_output, t, sample);
}

template <class T>
StepOutput CogVideoXDDIMScheduler::advance_in(const Tensor& model_output, int64_t t, const Tensor& sample) const {
  auto alpha = alpha_at<T>(t), alpha_prev = alpha_at<T>(previous_timestep(t));
  Tensor original = original_sample<T>(model_output, t, sample);
  T a = std::sqrt((1 - alpha_prev) / (1 - alpha)), b = std::sqrt(alpha_prev) - std::sqrt(alpha) * a;
  return {a * sample + b * original, original};
}

}  // namespace sf::diffusion
