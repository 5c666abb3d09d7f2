// MultistepScheduler: what DPM-Solver and UniPC share: noise levels, and what earlier steps' models said.
#pragma once
#include <cmath>

#include "scaffolding/core/error.h"
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
  std::vector<RunState> run_state() override;

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
  // The noisiest timestep plus one whose lambda is at least this.
  int64_t clipped_end(double lambda_min_clipped) const;
  // The noise levels of `timesteps`, or of a curve or of flow matching, which then replace the timesteps; and the least
  // of the training's.
  std::pair<std::vector<double>, float> dpm_levels(SigmaCurve curve, bool rounded, bool flow, double shift, int64_t n,
                                                   std::vector<double>& timesteps) const;
  // What DPM-Solver's updates are made of: the original for algorithm_type=*++, else epsilon.
  template <class Config> Tensor dpm_converted(const Config& config, const Tensor& output, const Tensor& sample) const {
    // A model that also predicts a variance has it in the channels after the sample's.
    Tensor model_output = output.shape() == sample.shape() ? output : output.narrow(1, 0, sample.size(1));
    auto limited = [&](const Tensor& original) {
      return config.thresholding
                 ? threshold_sample(original, config.dynamic_thresholding_ratio, config.sample_max_value)
                 : original;
    };
    if (config.algorithm_type.ends_with("++"))
      return limited(original_of(config.prediction_type, model_output, sample));
    Level at = level_at(*step_index_);
    Tensor epsilon = predicted_epsilon(config.prediction_type, model_output, sample, at.alpha, at.sigma);
    if (!config.thresholding) return epsilon;
    Tensor original = predicted_original("epsilon", epsilon, sample, at.alpha, at.sigma);
    return predicted_epsilon("sample", limited(original), sample, at.alpha, at.sigma);
  }
  // A step from noise level s to t, over h of lambda: x = a * sample + c0 * D0 + c1 * D1 + c2 * D2 + n * noise, with D1
  // and D2 differences of model outputs. heun: c1 by Heun's form, which the third order extends.
  struct DPMStep {
    float a = 0, c0 = 0, c1 = 0, c2 = 0, n = 0;
    Tensor operator()(const Tensor& sample, const Tensor& D0, const Tensor& D1, const Tensor& D2,
                      const Tensor& noise) const;
  };
  static DPMStep dpm_step(const std::string& algorithm, bool heun, const Level& t, const Level& s, float h);
  // One of the multistep solver, from what is remembered.
  Tensor dpm_multistep(const std::string& algorithm, const std::string& solver_type, int64_t order,
                       const Tensor& sample, const Tensor& noise) const;
  void restart();                       // before a run
  void remember(const Tensor& output);  // the newest is history(0)
  const Tensor& history(size_t back) const { return history_[history_.size() - 1 - back]; }

  bool flow_ = false, unscaled_ = false;  // sample = (1 - sigma) original + sigma noise; original + sigma noise
  Tensors history_;                       // solver_order entries, oldest first
  int64_t lower_order_nums_ = 0;          // steps of this run, up to the order
};

// Names of other solvers in configs that are shared between schedulers.
template <class Config> void take_names_of_others(Config& config) {
  if (config.algorithm_type == "deis") config.algorithm_type = "dpmsolver++";
  if (config.solver_type == "logrho" || config.solver_type == "bh1" || config.solver_type == "bh2")
    config.solver_type = "midpoint";
}

// What all solvers of several steps refuse.
template <class Config> void check_solver(const char* who, const Config& config, int64_t most_order) {
  check_betas(who, config);
  SF_CHECK(config.solver_order >= 1 && config.solver_order <= most_order, who, ": solver_order must be from 1 to ",
           most_order, ", got ", config.solver_order);
  SF_CHECK(config.flow_shift > 0 && std::isfinite(config.flow_shift), who, ": flow_shift must be positive, got ",
           config.flow_shift);
  check_clipping(who, 1, config.dynamic_thresholding_ratio, config.sample_max_value);
  sigma_curve(who, config.use_karras_sigmas, config.use_exponential_sigmas, config.use_beta_sigmas);
}

// What DPM-Solvers do besides, of one step or several; their algorithm_type is checked before.
template <class Config> void check_dpm_solver(const char* who, const Config& config) {
  const bool original = config.algorithm_type.ends_with("++");
  check_one_of(who, "solver_type", config.solver_type, {"midpoint", "heun"});
  if (original) {
    check_one_of(who, "prediction_type", config.prediction_type,
                 {"epsilon", "sample", "v_prediction", "flow_prediction"});
  } else {
    check_one_of(who, "prediction_type", config.prediction_type, {"epsilon", "sample", "v_prediction"});
  }
  check_one_of(who, "final_sigmas_type", config.final_sigmas_type, {"zero", "sigma_min"});
  check_one_of(who, "time_shift_type", config.time_shift_type, {"exponential"});
  SF_CHECK(original || config.final_sigmas_type != "zero", who,
           ": final_sigmas_type=zero needs dpmsolver++ or sde-dpmsolver++, got algorithm_type=", config.algorithm_type,
           "; pass final_sigmas_type=sigma_min");
  SF_CHECK(!std::isnan(config.lambda_min_clipped), who, ": lambda_min_clipped must be a number, got NaN");
}

// t shifted by mu: alpha = e^mu (exponential) or mu (linear) in alpha / (alpha + 1 / t - 1).
std::vector<double> time_shifted(const std::string& type, double mu, std::vector<double> t);
// Stretched so that the last one is `terminal`.
std::vector<double> stretched_to(double terminal, std::vector<double> t);
std::vector<double> flow_shifted(double shift, std::vector<double> sigmas);

}  // namespace sf::diffusion
