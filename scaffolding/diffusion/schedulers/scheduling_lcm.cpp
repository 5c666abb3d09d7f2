#include "scaffolding/diffusion/schedulers/scheduling_lcm.h"

#include <algorithm>
#include <cmath>

#include "scaffolding/core/error.h"
#include "scaffolding/diffusion/schedulers/factor.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion {

Fields LCMConfig::fields() {
  Fields f = BetaConfig::fields();
  f.insert(f.end(), {{"original_inference_steps", &original_inference_steps},
                     {"clip_sample", &clip_sample},
                     {"clip_sample_range", &clip_sample_range},
                     {"set_alpha_to_one", &set_alpha_to_one},
                     {"steps_offset", &steps_offset},
                     {"prediction_type", &prediction_type},
                     {"thresholding", &thresholding},
                     {"dynamic_thresholding_ratio", &dynamic_thresholding_ratio},
                     {"sample_max_value", &sample_max_value},
                     {"timestep_spacing", &timestep_spacing},
                     {"timestep_scaling", &timestep_scaling},
                     {"rescale_betas_zero_snr", &rescale_betas_zero_snr}});
  return f;
}

LCMScheduler::LCMScheduler(LCMConfig config) : config_(std::move(config)) {
  check_betas(kName, config_);
  check_one_of(kName, "prediction_type", config_.prediction_type, {"epsilon", "sample", "v_prediction"});
  SF_CHECK(config_.original_inference_steps >= 1, kName, ": original_inference_steps must be positive, got ",
           config_.original_inference_steps);
  SF_CHECK(std::isfinite(config_.timestep_scaling), kName, ": timestep_scaling must be finite, got ",
           config_.timestep_scaling);
  check_clipping(kName, config_.clip_sample_range, config_.dynamic_thresholding_ratio, config_.sample_max_value);
  auto alphas = alphas_cumprod_of(betas_of(kName, config_, config_.rescale_betas_zero_snr));
  set_alphas({alphas.begin(), alphas.end()}, config_.set_alpha_to_one);
}

void LCMScheduler::make_schedule(const TimestepOptions& o, int64_t n) {
  SF_CHECK(!(o.num_inference_steps && o.timesteps), kName, ": takes num_inference_steps or timesteps, not both");
  SF_CHECK(o.strength > 0 && o.strength <= 1, kName, ": strength must be above 0 and at most 1, got ", o.strength);
  if (o.timesteps) {
    check_custom_timesteps(*o.timesteps);
    auto length = int64_t(o.timesteps->size());
    int64_t skipped = std::max<int64_t>(length - std::min(int64_t(double(length) * o.strength), length), 0);
    SF_CHECK(skipped < length, kName, ": strength ", o.strength, " leaves none of ", length, " timesteps");
    set_schedule({o.timesteps->begin() + skipped, o.timesteps->end()}, kInt64, o.device);
    num_inference_steps_ = length;
    return;
  }
  int64_t original = o.original_inference_steps.value_or(config_.original_inference_steps);
  SF_CHECK(original >= 1 && original <= num_train_timesteps_, kName,
           ": original_inference_steps must be from 1 to num_train_timesteps=", num_train_timesteps_, ", got ",
           original);
  int64_t spacing = num_train_timesteps_ / original, available = int64_t(double(original) * o.strength);
  SF_CHECK(n <= available, kName,
           ": num_inference_steps must be at most original_inference_steps * strength = ", available, ", got ", n);
  std::vector<double> timesteps;
  double stride = double(available) / double(n);
  for (int64_t i = 0; i < n; ++i) {
    auto place = int64_t(double(i) * stride);  // among the teacher's, noisiest first
    timesteps.push_back(double((available - place) * spacing - 1));
  }
  set_schedule(timesteps, kInt64, o.device);
  num_inference_steps_ = n;
}

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
