#include "scaffolding/diffusion/schedulers/scheduling_dpm_cogvideox.h"

#include <cmath>

#include "scaffolding/core/error.h"
#include "scaffolding/diffusion/schedulers/factor.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion {

CogVideoXDPMScheduler::CogVideoXDPMScheduler(CogVideoXConfig config) {
  config_ = std::move(config);
  set_up_shifted(kName);
}

StepOutput CogVideoXDPMScheduler::advance(const Tensor& model_output, double timestep, const Tensor& sample,
                                          const StepOptions& o) {
  int64_t t = training_timestep(timestep);
  if (o.old_pred_original_sample) {
    check_shape(kName, "old_pred_original_sample", o.old_pred_original_sample, sample.shape());
    SF_CHECK(o.timestep_back.has_value(), kName, ": old_pred_original_sample needs timestep_back");
  }
  return in_float64_ ? advance_in<double>(model_output, t, sample, o) : advance_in<float>(model_output, t, sample, o);
}

template <class T>
StepOutput CogVideoXDPMScheduler::advance_in(const Tensor& model_output, int64_t t, const Tensor& sample,
                                             const StepOptions& o) const {
  int64_t prev = previous_timestep(t);
  auto alpha = alpha_at<T>(t), alpha_prev = alpha_at<T>(prev);
  auto lambda = [](T a) { return std::log(std::sqrt(a / (1 - a))); };
  T h = lambda(alpha_prev) - lambda(alpha);
  T kept = std::sqrt((1 - alpha_prev) / (1 - alpha)) * std::exp(-h);
  T given = std::expm1(-2 * h) * std::sqrt(alpha_prev);
  T fresh = std::sqrt(1 - alpha_prev) * std::sqrt(1 - std::exp(-2 * h));
  auto noise = [&] { return randn_tensor(sample.shape(), o.generator, sample.device(), sample.dtype()); };
  Tensor original = original_sample<T>(model_output, t, sample);
  Tensor prev_sample = kept * sample - given * original + fresh * noise();
  if (!o.old_pred_original_sample || prev < 0) return {prev_sample, original};
  // diffusers draws noise for the first-order step too, and then again.
  T r = (lambda(alpha) - lambda(alpha_at<T>(training_timestep(*o.timestep_back)))) / h;
  Tensor extrapolated = (1 + 1 / (2 * r)) * original - 1 / (2 * r) * o.old_pred_original_sample;
  return {kept * sample - given * extrapolated + fresh * noise(), original};
}

}  // namespace sf::diffusion
