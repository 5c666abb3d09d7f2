#include "scaffolding/diffusion/schedulers/scheduling_ddim.h"

#include <cmath>

#include "scaffolding/core/error.h"
#include "scaffolding/diffusion/schedulers/factor.h"
#include "scaffolding/diffusion/schedulers/timestep_spacing.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion {

Fields DDIMConfig::fields() {
  Fields f = BetaConfig::fields();
  f.insert(f.end(), {{"clip_sample", &clip_sample},
                     {"set_alpha_to_one", &set_alpha_to_one},
                     {"steps_offset", &steps_offset},
                     {"prediction_type", &prediction_type},
                     {"thresholding", &thresholding},
                     {"dynamic_thresholding_ratio", &dynamic_thresholding_ratio},
                     {"clip_sample_range", &clip_sample_range},
                     {"sample_max_value", &sample_max_value},
                     {"timestep_spacing", &timestep_spacing},
                     {"rescale_betas_zero_snr", &rescale_betas_zero_snr}});
  return f;
}

DDIMScheduler::DDIMScheduler(DDIMConfig config) : config_(std::move(config)) {
  check_betas(kName, config_, Betas::Any);
  check_one_of(kName, "prediction_type", config_.prediction_type, {"epsilon", "sample", "v_prediction"});
  check_one_of(kName, "timestep_spacing", config_.timestep_spacing, {"linspace", "leading", "trailing"});
  check_clipping(kName, config_.clip_sample_range, config_.dynamic_thresholding_ratio, config_.sample_max_value);
  set_betas(kName, config_, config_.rescale_betas_zero_snr, config_.set_alpha_to_one);
}

void DDIMScheduler::make_schedule(const TimestepOptions& o, int64_t n) {
  set_schedule(spaced_timesteps({kName, config_.timestep_spacing, num_train_timesteps_, n, config_.steps_offset}),
               kInt64, o.device);
  num_inference_steps_ = n;
}

StepOutput DDIMScheduler::advance(const Tensor& model_output, double timestep, const Tensor& sample,
                                  const StepOptions& o) {
  int64_t t = training_timestep(timestep), prev = t - num_train_timesteps_ / *num_inference_steps_;
  auto alpha = alpha_at<float>(t), alpha_prev = alpha_at<float>(prev), beta = 1 - alpha;
  float root_alpha = std::sqrt(alpha), root_beta = std::sqrt(beta);
  Tensor original =
      limited(config_, predicted_original(config_.prediction_type, model_output, sample, root_alpha, root_beta));
  float variance = (1 - alpha_prev) / beta * (1 - alpha / alpha_prev);
  float std = float(o.eta) * std::sqrt(variance);
  Tensor epsilon = o.use_clipped_model_output
                       ? predicted_epsilon("sample", original, sample, root_alpha, root_beta)
                       : predicted_epsilon(config_.prediction_type, model_output, sample, root_alpha, root_beta);
  Tensor prev_sample = std::sqrt(alpha_prev) * original + std::sqrt(1 - alpha_prev - std * std) * epsilon;
  if (o.eta > 0) {
    Tensor noise = o.variance_noise
                       ? o.variance_noise
                       : randn_tensor(model_output.shape(), o.generator, model_output.device(), model_output.dtype());
    prev_sample = prev_sample + std * noise;
  }
  return {prev_sample, original};
}

}  // namespace sf::diffusion
