#include "scaffolding/diffusion/schedulers/scheduling_tcd.h"

#include <cmath>

#include "scaffolding/core/error.h"
#include "scaffolding/diffusion/schedulers/factor.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion {

TCDScheduler::TCDScheduler(ConsistencyConfig config) : ConsistencyScheduler(std::move(config)) { set_up(kName); }

StepOutput TCDScheduler::advance(const Tensor& model_output, double timestep, const Tensor& sample,
                                 const StepOptions& o) {
  SF_CHECK(o.eta >= 0 && o.eta <= 1, kName, ": eta must be from 0 to 1, got ", o.eta);
  start_index(timestep);
  const int64_t t = training_timestep(timestep),
                prev = place() + 1 < timestep_values_.size() ? int64_t(timestep_values_[place() + 1]) : 0,
                past = int64_t(std::floor(float(1 - o.eta) * float(prev)));
  const auto alpha = alpha_at<float>(t), alpha_prev = alpha_at<float>(prev), alpha_past = alpha_at<float>(past);
  const float root_alpha = std::sqrt(alpha), root_beta = std::sqrt(1 - alpha);
  const Tensor original = predicted_original(config_.prediction_type, model_output, sample, root_alpha, root_beta),
               epsilon = predicted_epsilon(config_.prediction_type, model_output, sample, root_alpha, root_beta),
               noised = std::sqrt(alpha_past) * original + std::sqrt(1 - alpha_past) * epsilon;
  Tensor prev_sample = noised;
  if (o.eta > 0 && *step_index_ != *num_inference_steps_ - 1) {
    const Tensor noise = randn_tensor(model_output.shape(), o.generator, model_output.device(), noised.dtype());
    const float kept = alpha_prev / alpha_past;
    prev_sample = std::sqrt(kept) * noised + std::sqrt(1 - kept) * noise;
  }
  ++*step_index_;
  return {prev_sample, noised};
}

}  // namespace sf::diffusion
