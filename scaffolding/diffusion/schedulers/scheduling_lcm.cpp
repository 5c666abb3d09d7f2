#include "scaffolding/diffusion/schedulers/scheduling_lcm.h"

#include <cmath>

#include "scaffolding/diffusion/schedulers/factor.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion {

LCMScheduler::LCMScheduler(ConsistencyConfig config) : ConsistencyScheduler(std::move(config)) { set_up(kName); }

StepOutput LCMScheduler::advance(const Tensor& model_output, double timestep, const Tensor& sample,
                                 const StepOptions& o) {
  start_index(timestep);
  int64_t t = training_timestep(timestep);
  int64_t prev = place() + 1 < timestep_values_.size() ? int64_t(timestep_values_[place() + 1]) : t;
  auto alpha = alpha_at<float>(t), alpha_prev = alpha_at<float>(prev);
  float beta = 1 - alpha, beta_prev = 1 - alpha_prev;
  constexpr float kSigmaData = 0.5f;
  float scaled = float(t) * float(config_.timestep_scaling), power = scaled * scaled + kSigmaData * kSigmaData;
  float c_skip = kSigmaData * kSigmaData / power, c_out = scaled / std::sqrt(power);
  Tensor original = limited(
      config_, predicted_original(config_.prediction_type, model_output, sample, std::sqrt(alpha), std::sqrt(beta)));
  Tensor denoised = c_out * original + c_skip * sample, prev_sample = denoised;
  if (*step_index_ != *num_inference_steps_ - 1) {
    Tensor noise = randn_tensor(model_output.shape(), o.generator, model_output.device(), denoised.dtype());
    prev_sample = std::sqrt(alpha_prev) * denoised + std::sqrt(beta_prev) * noise;
  }
  ++*step_index_;
  return {prev_sample, denoised};
}

}  // namespace sf::diffusion
