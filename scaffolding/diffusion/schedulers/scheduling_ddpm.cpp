#include "scaffolding/diffusion/schedulers/scheduling_ddpm.h"

#include <cmath>

#include "scaffolding/core/error.h"
#include "scaffolding/diffusion/schedulers/factor.h"
#include "scaffolding/diffusion/schedulers/timestep_spacing.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion {

Fields DDPMConfig::fields() {
  Fields f = BetaConfig::fields();
  f.insert(f.end(), {{"variance_type", &variance_type},
                     {"clip_sample", &clip_sample},
                     {"prediction_type", &prediction_type},
                     {"thresholding", &thresholding},
                     {"dynamic_thresholding_ratio", &dynamic_thresholding_ratio},
                     {"clip_sample_range", &clip_sample_range},
                     {"sample_max_value", &sample_max_value},
                     {"timestep_spacing", &timestep_spacing},
                     {"steps_offset", &steps_offset},
                     {"rescale_betas_zero_snr", &rescale_betas_zero_snr}});
  return f;
}

DDPMScheduler::DDPMScheduler(DDPMConfig config) : config_(std::move(config)) {
  check_betas(kName, config_, Betas::Any);
  check_one_of(kName, "prediction_type", config_.prediction_type, {"epsilon", "sample", "v_prediction"});
  check_one_of(kName, "timestep_spacing", config_.timestep_spacing, {"linspace", "leading", "trailing"});
  check_clipping(kName, config_.clip_sample_range, config_.dynamic_thresholding_ratio, config_.sample_max_value);
  learned_ = variance_type() == "learned" || variance_type() == "learned_range";
  set_betas(kName, config_, config_.rescale_betas_zero_snr, true);
}

void DDPMScheduler::make_schedule(const TimestepOptions& o, int64_t n) {
  SF_CHECK(!(o.num_inference_steps && o.timesteps), kName, ": takes num_inference_steps or timesteps, not both");
  if (o.timesteps) {
    check_custom_timesteps(*o.timesteps);
    set_schedule(*o.timesteps, kInt64, o.device);
    num_inference_steps_ = int64_t(o.timesteps->size());
    return;
  }
  set_schedule(spaced_timesteps({kName, config_.timestep_spacing, num_train_timesteps_, n, config_.steps_offset}),
               kInt64, o.device);
  num_inference_steps_ = n;
}

int64_t DDPMScheduler::previous_timestep(int64_t t) const {
  if (!set_up_) return t - 1;
  auto i = size_t(index_of(double(t)));
  return i + 1 < timestep_values_.size() ? int64_t(timestep_values_[i + 1]) : -1;
}

StepOutput DDPMScheduler::advance(const Tensor& output, double timestep, const Tensor& sample, const StepOptions& o) {
  int64_t t = training_timestep(timestep), prev = previous_timestep(t);
  Tensor model_output = output, predicted_variance;
  if (learned_) {
    SF_CHECK(sample.ndim() > 1 && output.size(1) == 2 * sample.size(1), kName, ": variance_type=", variance_type(),
             " needs a model_output with twice the channels of sample ", sample.shape(), ", got ", output.shape());
    model_output = output.narrow(1, 0, sample.size(1));
    predicted_variance = output.narrow(1, sample.size(1), sample.size(1));
  }
  auto alpha = alpha_at<float>(t), alpha_prev = alpha_at<float>(prev);
  float beta = 1 - alpha, beta_prev = 1 - alpha_prev, current_alpha = alpha / alpha_prev,
        current_beta = 1 - current_alpha;
  Tensor original = limited(
      config_, predicted_original(config_.prediction_type, model_output, sample, std::sqrt(alpha), std::sqrt(beta)));
  Tensor prev_sample =
      std::sqrt(alpha_prev) * current_beta / beta * original + std::sqrt(current_alpha) * beta_prev / beta * sample;
  if (t == 0) return {prev_sample, original};

  Tensor noise = randn_tensor(model_output.shape(), o.generator, model_output.device(), model_output.dtype());
  // The variance of equation 7; its logarithm must exist at the last step.
  float variance = std::max(beta_prev / beta * current_beta, 1e-20f);
  const std::string type = variance_type();
  if (type == "fixed_small_log") return {prev_sample + std::exp(0.5f * std::log(variance)) * noise, original};
  if (type == "fixed_large") return {prev_sample + std::sqrt(current_beta) * noise, original};
  // diffusers takes the root of this logarithm, which is negative: its samples are NaN, as these are.
  if (type == "fixed_large_log") return {prev_sample + std::sqrt(std::log(current_beta)) * noise, original};
  if (type == "learned") return {prev_sample + sqrt(predicted_variance) * noise, original};
  // as diffusers: whatever it does not know is fixed_small
  if (type != "learned_range") return {prev_sample + std::sqrt(variance) * noise, original};
  Tensor fraction = (predicted_variance + 1) / 2;
  Tensor log_variance = fraction * std::log(current_beta) + (1 - fraction) * std::log(variance);
  return {prev_sample + exp(0.5 * log_variance) * noise, original};
}

}  // namespace sf::diffusion
