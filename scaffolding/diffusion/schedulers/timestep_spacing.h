// Which of the training timesteps, and which noise levels, a run of fewer steps visits. Numbers are numpy's, as
// diffusers has them: float64 unless said, rounding of halves to even.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace sf::diffusion {

struct Spacing {
  const char* who;
  std::string kind;  // linspace, leading, trailing: table 2 of Lin et al. 2023, arXiv 2305.08891
  int64_t training;  // num_train_timesteps
  int64_t steps;
  int64_t offset = 0;     // added to leading timesteps
  bool rounded = true;    // linspace: to whole timesteps
  int64_t last = 0;       // the noisiest timestep plus one; 0: training
  bool one_more = false;  // spaced for one step more, whose last (least noisy) timestep is left out
};
std::vector<double> spaced_timesteps(const Spacing& s);  // descending

std::vector<double> linspace64(double start, double end, int64_t n);
// Values at positions `at` of a table, linear between entries, the ends' beyond them.
std::vector<double> interpolate(const std::vector<double>& at, const std::vector<float>& table);

// sigma = sqrt((1 - alpha) / alpha), ascending with the timestep.
std::vector<float> sigmas_of(const std::vector<float>& alphas_cumprod);
std::vector<float> log_of(const std::vector<float>& values);
// The timestep, with a fraction, of a noise level among ascending log_sigmas. T: the dtype that numpy computes in.
template <class T> double sigma_to_timestep(T sigma, const std::vector<float>& log_sigmas);

// n noise levels from sigma_max down to sigma_min.
std::vector<double> karras_sigmas(double sigma_min, double sigma_max, int64_t n);       // Karras et al. 2022, rho 7
std::vector<double> exponential_sigmas(double sigma_min, double sigma_max, int64_t n);  // equal ratios
std::vector<double> beta_sigmas(double sigma_min, double sigma_max,
                                int64_t n);  // Lee et al. 2024, arXiv 2407.12173: Beta(0.6, 0.6)

// Which of the three a config asks for, if any. ValueError for more than one.
enum class SigmaCurve : uint8_t { None, Karras, Exponential, Beta };
SigmaCurve sigma_curve(const char* who, bool karras, bool exponential, bool beta);
std::vector<double> curve_sigmas(SigmaCurve curve, double sigma_min, double sigma_max, int64_t n);

}  // namespace sf::diffusion
