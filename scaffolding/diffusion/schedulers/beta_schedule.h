// Noise schedules: how much noise each of the training timesteps adds, and how much signal is left after it.
// Numbers are diffusers': the same dtype and the same order of operations, since samplers subtract nearly equal ones.
#pragma once
#include "scaffolding/io/config.h"

namespace sf::diffusion {

using io::ConfigRest, io::Field, io::Fields, io::read_fields, io::write_fields;

// The first fields of every scheduler with a noise schedule.
struct BetaConfig {
  int64_t num_train_timesteps = 1000;
  double beta_start = 0.0001;
  double beta_end = 0.02;
  std::string beta_schedule = "linear";
  // Instead of the schedule of the three above, of any length: timesteps from num_train_timesteps that lie beyond them
  // have the last one's noise where noise levels are interpolated, and are refused elsewhere.
  std::optional<std::vector<double>> trained_betas;

  Fields fields();
};

// betas[num_timesteps] in float32. schedule: linear, scaled_linear, squaredcos_cap_v2 (also cosine), sigmoid, exp,
// laplace.
std::vector<float> get_beta_schedule(const std::string& schedule, int64_t num_timesteps, double beta_start,
                                     double beta_end);
std::vector<float> betas_of(const char* who, const BetaConfig& config, bool rescale_zero_snr = false);

// Betas whose last timestep keeps no signal (Lin et al. 2023, arXiv 2305.08891, algorithm 1).
std::vector<float> rescale_zero_terminal_snr(const std::vector<float>& betas);

// The products of 1 - beta up to each timestep: the share of the signal's power that is left.
std::vector<float> alphas_cumprod_of(const std::vector<float>& betas);

// ValueError for sizes and rates that cannot be. Betas of 1 and above, after which no signal is left, are let through
// where a class computes with them as diffusers' does, to NaN; where noise levels would be NaN they are refused.
enum class Betas { BelowOne, Any };
void check_betas(const char* who, const BetaConfig& config, Betas range = Betas::BelowOne);

}  // namespace sf::diffusion
