// DPM-2: Karras et al. 2022, arXiv 2206.00364, of second order: two calls of the model a step.
#pragma once
#include "scaffolding/diffusion/schedulers/k_dpm_2.h"

namespace sf::diffusion {

class KDPM2DiscreteScheduler final : public KDPM2Scheduler {
 public:
  static constexpr const char* kName = "KDPM2DiscreteScheduler";
  explicit KDPM2DiscreteScheduler(KDPM2Config config = {}) : KDPM2Scheduler(std::move(config)) { set_up(kName); }
  const char* name() const override { return kName; }

 protected:
  Levels levels(float from, float to) const override { return {middle(to, from), to, 0}; }
};

}  // namespace sf::diffusion
