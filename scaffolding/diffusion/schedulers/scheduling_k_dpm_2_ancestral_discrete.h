// DPM-2 with fresh noise after every step (k-diffusion's sample_dpm_2_ancestral).
#pragma once
#include <cmath>

#include "scaffolding/diffusion/schedulers/k_dpm_2.h"

namespace sf::diffusion {

class KDPM2AncestralDiscreteScheduler final : public KDPM2Scheduler {
 public:
  static constexpr const char* kName = "KDPM2AncestralDiscreteScheduler";
  explicit KDPM2AncestralDiscreteScheduler(KDPM2Config config = {}) : KDPM2Scheduler(std::move(config)) {
    set_up(kName);
  }
  const char* name() const override { return kName; }
  std::string_view step_parameters() const override { return "model_output, timestep, sample, generator, return_dict"; }

 protected:
  bool adds_noise() const override { return true; }
  Levels levels(float from, float to) const override {
    const float up = std::sqrt(to * to * (from * from - to * to) / (from * from)), down = std::sqrt(to * to - up * up);
    return {middle(from, down), down, up};
  }
};

}  // namespace sf::diffusion
