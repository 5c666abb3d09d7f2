// The preconditioning of EDM: Karras et al. 2022, arXiv 2206.00364, table 1. Models are called with 0.25 log(sigma),
// and what they say is scaled to the sample without noise.
#pragma once
#include "scaffolding/diffusion/schedulers/prediction.h"
#include "scaffolding/diffusion/schedulers/scheduler.h"

namespace sf::diffusion {

struct EDMConfig {
  double sigma_min = 0.002, sigma_max = 80;
  double sigma_data = 0.5;
  std::string sigma_schedule = "karras";  // or exponential
  int64_t num_train_timesteps = 1000;
  std::string prediction_type = "epsilon";  // or v_prediction
  double rho = 7;
  std::string final_sigmas_type = "zero";  // or sigma_min

  void check(const char* who) const;
  // The noise levels at shares of the way from sigma_max to sigma_min; the exponential schedule counts them only.
  // T: the dtype they are computed in.
  template <class T> std::vector<float> levels(const std::vector<double>& shares) const;
  std::vector<float> with_end(std::vector<float> levels) const;  // and the one that ends a run
  std::vector<double> timesteps_of(const std::vector<float>& levels) const;
  Tensor scaled_input(const Tensor& sample, float sigma) const;
  Tensor original(const Tensor& model_output, const Tensor& sample, float sigma) const;
  double initial_sigma() const;
};

}  // namespace sf::diffusion
