#include "scaffolding/diffusion/schedulers/consistency_schedule.h"

#include <algorithm>
#include <cmath>

#include "scaffolding/core/error.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion {

Fields ConsistencyConfig::fields() {
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

void ConsistencyScheduler::set_up(const char* who) {
  check_betas(who, config_, Betas::Any);
  check_one_of(who, "prediction_type", config_.prediction_type, {"epsilon", "sample", "v_prediction"});
  SF_CHECK(config_.original_inference_steps >= 1, who, ": original_inference_steps must be positive, got ",
           config_.original_inference_steps);
  SF_CHECK(std::isfinite(config_.timestep_scaling), who, ": timestep_scaling must be finite, got ",
           config_.timestep_scaling);
  check_clipping(who, config_.clip_sample_range, config_.dynamic_thresholding_ratio, config_.sample_max_value);
  set_betas(who, config_, config_.rescale_betas_zero_snr, config_.set_alpha_to_one);
}

void ConsistencyScheduler::make_schedule(const TimestepOptions& o, int64_t n) {
  SF_CHECK(!(o.num_inference_steps && o.timesteps), name(), ": takes num_inference_steps or timesteps, not both");
  SF_CHECK(o.strength > 0 && o.strength <= 1, name(), ": strength must be above 0 and at most 1, got ", o.strength);
  if (o.timesteps) {
    check_custom_timesteps(*o.timesteps);
    auto length = int64_t(o.timesteps->size());
    int64_t skipped = std::max<int64_t>(length - std::min(int64_t(double(length) * o.strength), length), 0);
    SF_CHECK(skipped < length, name(), ": strength ", o.strength, " leaves none of ", length, " timesteps");
    set_schedule({o.timesteps->begin() + skipped, o.timesteps->end()}, kInt64, o.device);
    num_inference_steps_ = length;
    return;
  }
  const int64_t original = o.original_inference_steps.value_or(config_.original_inference_steps);
  SF_CHECK(original >= 1 && original <= num_train_timesteps_, name(),
           ": original_inference_steps must be from 1 to num_train_timesteps=", num_train_timesteps_, ", got ",
           original);
  const bool every = o.original_inference_steps && takes_every_timestep();
  const int64_t spacing = every ? 1 : num_train_timesteps_ / original,
                available = int64_t(double(every ? num_train_timesteps_ : original) * o.strength);
  SF_CHECK(!every || n <= original, name(), ": num_inference_steps must be at most original_inference_steps=", original,
           ", got ", n);
  SF_CHECK(n <= available, name(),
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

}  // namespace sf::diffusion
