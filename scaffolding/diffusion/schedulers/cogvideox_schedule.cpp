#include "scaffolding/diffusion/schedulers/cogvideox_schedule.h"

#include <cmath>

#include "scaffolding/core/error.h"
#include "scaffolding/diffusion/schedulers/factor.h"
#include "scaffolding/diffusion/schedulers/timestep_spacing.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion {

namespace {

template <class T> std::vector<double> shifted(const std::vector<T>& alphas, double scale, bool zero_snr) {
  std::vector<T> out;
  for (T a : alphas) out.push_back(a / (T(scale) + T(1 - scale) * a));
  if (zero_snr) {
    T first = std::sqrt(out.front()), last = std::sqrt(out.back()), stretch = first / (first - last);
    for (T& a : out) {
      T root = (std::sqrt(a) - last) * stretch;
      a = root * root;
    }
  }
  return {out.begin(), out.end()};
}

}  // namespace

Fields CogVideoXConfig::fields() {
  Fields f = BetaConfig::fields();
  f.insert(f.end(), {{"clip_sample", &clip_sample},
                     {"set_alpha_to_one", &set_alpha_to_one},
                     {"steps_offset", &steps_offset},
                     {"prediction_type", &prediction_type},
                     {"clip_sample_range", &clip_sample_range},
                     {"sample_max_value", &sample_max_value},
                     {"timestep_spacing", &timestep_spacing},
                     {"rescale_betas_zero_snr", &rescale_betas_zero_snr},
                     {"snr_shift_scale", &snr_shift_scale}});
  return f;
}

void CogVideoXScheduler::set_up_shifted(const char* who) {
  check_betas(who, config_);
  check_one_of(who, "prediction_type", config_.prediction_type, {"epsilon", "sample", "v_prediction"});
  check_one_of(who, "timestep_spacing", config_.timestep_spacing, {"linspace", "leading", "trailing"});
  SF_CHECK(config_.snr_shift_scale > 0 && std::isfinite(config_.snr_shift_scale), who,
           ": snr_shift_scale must be positive, got ", config_.snr_shift_scale);
  check_clipping(who, config_.clip_sample_range, 1, config_.sample_max_value);
  in_float64_ = config_.beta_schedule == "scaled_linear" && !config_.trained_betas;
  if (in_float64_) {
    double product = 1;
    std::vector<double> alphas;
    for (double root :
         linspace(std::sqrt(config_.beta_start), std::sqrt(config_.beta_end), config_.num_train_timesteps, kFloat64)
             .to_vector())
      alphas.push_back(product *= 1 - root * root);
    betas_ = betas_of(who, config_);
    set_alphas(config_.num_train_timesteps, shifted(alphas, config_.snr_shift_scale, config_.rescale_betas_zero_snr),
               config_.set_alpha_to_one);
  } else {
    betas_ = betas_of(who, config_);
    set_alphas(config_.num_train_timesteps,
               shifted(alphas_cumprod_of(betas_), config_.snr_shift_scale, config_.rescale_betas_zero_snr),
               config_.set_alpha_to_one);
  }
}

void CogVideoXScheduler::make_schedule(const TimestepOptions& o, int64_t n) {
  set_schedule(spaced_timesteps({name(), config_.timestep_spacing, num_train_timesteps_, n, config_.steps_offset}),
               kInt64, o.device);
  num_inference_steps_ = n;
}

template <class T>
Tensor CogVideoXScheduler::original_sample(const Tensor& model_output, int64_t timestep, const Tensor& sample) const {
  auto alpha = alpha_at<T>(timestep), beta = 1 - alpha;
  return predicted_original(config_.prediction_type, model_output, sample, std::sqrt(alpha), std::sqrt(beta));
}
template Tensor CogVideoXScheduler::original_sample<float>(const Tensor&, int64_t, const Tensor&) const;
template Tensor CogVideoXScheduler::original_sample<double>(const Tensor&, int64_t, const Tensor&) const;

}  // namespace sf::diffusion
