// MultistepScheduler: what DPM-Solver and UniPC share: noise levels, and what earlier steps' models said.
#pragma once
#include <cmath>

#include "scaffolding/diffusion/schedulers/scheduler.h"

namespace sf::diffusion {

// Exponentials and logarithms of float32 rounded once. libm's own for float are often wrong in the last place, torch's
// hardly ever, and the samplers' differences of nearly equal numbers multiply that.
inline float rounded_exp(float x) { return float(std::exp(double(x))); }
inline float rounded_expm1(float x) { return float(std::expm1(double(x))); }
inline float rounded_log(float x) { return float(std::log(double(x))); }

class MultistepScheduler : public SigmaScheduler {
 public:
  Tensor add_noise(const Tensor& original_samples, const Tensor& noise, const Tensor& timesteps) override;
  void keep_samples(const Tensor& places) override;

 protected:
  // sample = alpha * signal + sigma * noise, and lambda = log(alpha / sigma), in float32 as diffusers has them.
  struct Level {
    float alpha, sigma, lambda;
  };
  Level level_of(float sigma) const;
  Level level_at(int64_t index) const { return level_of(sigma_at(index)); }

  void set_up_levels(const BetaConfig& config, bool rescale_zero_snr, bool flow, int64_t solver_order);
  // A timestep that is none of the schedule's is taken for the last one, as in diffusers.
  int64_t index_for_timestep(double timestep) const override;
  // The original that a model's output says at this step. flow_prediction, of sample = (1 - sigma) * original + sigma *
  // noise, says their difference.
  Tensor original_of(const std::string& prediction_type, const Tensor& model_output, const Tensor& sample) const;
  void restart();                       // before a run
  void remember(const Tensor& output);  // the newest is history(0)
  const Tensor& history(size_t back) const { return history_[history_.size() - 1 - back]; }

  bool flow_ = false;
  Tensors history_;               // solver_order entries, oldest first
  int64_t lower_order_nums_ = 0;  // steps of this run, up to the order
};

// t shifted by mu: alpha = e^mu (exponential) or mu (linear) in alpha / (alpha + 1 / t - 1).
std::vector<double> time_shifted(const std::string& type, double mu, std::vector<double> t);
// Stretched so that the last one is `terminal`.
std::vector<double> stretched_to(double terminal, std::vector<double> t);
std::vector<double> flow_shifted(double shift, std::vector<double> sigmas);

}  // namespace sf::diffusion
