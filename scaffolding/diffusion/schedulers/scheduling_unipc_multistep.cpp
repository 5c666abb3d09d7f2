#include "scaffolding/diffusion/schedulers/scheduling_unipc_multistep.h"

#include <algorithm>
#include <cmath>

#include "scaffolding/core/error.h"
#include "scaffolding/diffusion/schedulers/factor.h"
#include "scaffolding/diffusion/schedulers/timestep_spacing.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion {

namespace {

// x with A x = b for the n * n matrix A in rows, by elimination with pivots; in float32, as diffusers solves it.
std::vector<float> solved(std::vector<float> A, std::vector<float> b) {
  size_t n = b.size();
  for (size_t k = 0; k < n; ++k) {
    size_t pivot = k;
    for (size_t i = k + 1; i < n; ++i)
      if (std::abs(A[i * n + k]) > std::abs(A[pivot * n + k])) pivot = i;
    std::swap_ranges(A.begin() + int64_t(k * n), A.begin() + int64_t((k + 1) * n), A.begin() + int64_t(pivot * n));
    std::swap(b[k], b[pivot]);
    for (size_t i = k + 1; i < n; ++i) {
      float f = A[i * n + k] / A[k * n + k];
      for (size_t j = k; j < n; ++j) A[i * n + j] -= f * A[k * n + j];
      b[i] -= f * b[k];
    }
  }
  for (size_t k = n; k-- > 0;) {
    for (size_t j = k + 1; j < n; ++j) b[k] -= A[k * n + j] * b[j];
    b[k] /= A[k * n + k];
  }
  return b;
}

constexpr int64_t kMostOrder = 16;

}  // namespace

Fields UniPCMultistepConfig::fields() {
  Fields f = BetaConfig::fields();
  f.insert(f.end(), {{"solver_order", &solver_order},
                     {"prediction_type", &prediction_type},
                     {"thresholding", &thresholding},
                     {"dynamic_thresholding_ratio", &dynamic_thresholding_ratio},
                     {"sample_max_value", &sample_max_value},
                     {"predict_x0", &predict_x0},
                     {"solver_type", &solver_type},
                     {"lower_order_final", &lower_order_final},
                     {"disable_corrector", &disable_corrector},
                     {"solver_p", &solver_p},
                     {"use_karras_sigmas", &use_karras_sigmas},
                     {"use_exponential_sigmas", &use_exponential_sigmas},
                     {"use_beta_sigmas", &use_beta_sigmas},
                     {"use_flow_sigmas", &use_flow_sigmas},
                     {"flow_shift", &flow_shift},
                     {"timestep_spacing", &timestep_spacing},
                     {"steps_offset", &steps_offset},
                     {"final_sigmas_type", &final_sigmas_type},
                     {"rescale_betas_zero_snr", &rescale_betas_zero_snr},
                     {"use_dynamic_shifting", &use_dynamic_shifting},
                     {"time_shift_type", &time_shift_type},
                     {"sigma_min", &sigma_min},
                     {"sigma_max", &sigma_max},
                     {"shift_terminal", &shift_terminal}});
  return f;
}

std::vector<RunState> UniPCMultistepScheduler::run_state() {
  auto all = MultistepScheduler::run_state();
  all.push_back({"last_sample", &last_sample_});
  all.push_back({"this_order", &this_order_, history_.size()});
  return all;
}

UniPCMultistepScheduler::UniPCMultistepScheduler(UniPCMultistepConfig config) : config_(std::move(config)) {
  check_solver(kName, config_, kMostOrder);
  // Names of other solvers in configs that are shared between schedulers.
  if (config_.solver_type == "midpoint" || config_.solver_type == "heun" || config_.solver_type == "logrho")
    config_.solver_type = "bh2";
  check_one_of(kName, "solver_type", config_.solver_type, {"bh1", "bh2"});
  if (config_.predict_x0) {
    check_one_of(kName, "prediction_type", config_.prediction_type,
                 {"epsilon", "sample", "v_prediction", "flow_prediction"});
  } else {
    check_one_of(kName, "prediction_type", config_.prediction_type, {"epsilon", "sample", "v_prediction"});
  }
  check_one_of(kName, "timestep_spacing", config_.timestep_spacing, {"linspace", "leading", "trailing"});
  check_one_of(kName, "final_sigmas_type", config_.final_sigmas_type, {"zero", "sigma_min"});
  check_one_of(kName, "time_shift_type", config_.time_shift_type, {"exponential", "linear"});
  SF_CHECK_AS(NotSupported, !config_.solver_p, kName, ": solver_p must be a scheduler or null, got '",
              config_.solver_p.value_or(""), "'");
  SF_CHECK(!config_.shift_terminal || config_.use_flow_sigmas, kName, ": shift_terminal needs use_flow_sigmas");
  SF_CHECK(!config_.shift_terminal || (*config_.shift_terminal >= 0 && *config_.shift_terminal < 1), kName,
           ": shift_terminal must be at least 0 and below 1, got ", config_.shift_terminal.value_or(0));
  check_sigma_range(kName, config_.sigma_min, config_.sigma_max);
  set_up_levels(config_, config_.rescale_betas_zero_snr, config_.use_flow_sigmas, config_.solver_order);
}

void UniPCMultistepScheduler::make_schedule(const TimestepOptions& o, int64_t n) {
  SF_CHECK(!config_.use_dynamic_shifting || o.mu, kName, ": use_dynamic_shifting needs set_timesteps' mu");
  SF_CHECK(!o.sigmas || config_.use_flow_sigmas, kName, ": sigmas need use_flow_sigmas");
  if (o.sigmas) n = int64_t(o.sigmas->size());
  auto training = double(num_train_timesteps_);
  std::vector<float> table = training_sigmas_;
  if (o.sigmas) table.assign(o.sigmas->begin(), o.sigmas->end());
  std::vector<double> timesteps, levels;
  SigmaCurve curve =
      sigma_curve(kName, config_.use_karras_sigmas, config_.use_exponential_sigmas, config_.use_beta_sigmas);
  float last = 0;
  if (curve != SigmaCurve::None) {
    levels = curve_sigmas(curve, config_.sigma_min.value_or(double(table.front())),
                          config_.sigma_max.value_or(double(table.back())), n);
    bool karras = curve == SigmaCurve::Karras;
    auto logs = log_of(table);
    for (double& s : levels) {
      if (karras && config_.use_flow_sigmas) {
        s = s / (s + 1);
        timesteps.push_back(s * training);
      } else {
        double t = sigma_to_timestep(s, logs);
        timesteps.push_back(karras ? std::nearbyint(t) : t);
      }
    }
    last = float(levels.back());
  } else if (config_.use_flow_sigmas) {
    constexpr double kBelowOne = 1e-6;  // at 1 no signal is left, and its logarithm is infinite
    if (o.sigmas) {
      levels = *o.sigmas;
    } else {
      levels = linspace64(1, 1 / training, n + 1);
      levels.pop_back();
    }
    levels = config_.use_dynamic_shifting ? time_shifted(config_.time_shift_type, *o.mu, levels)
                                          : flow_shifted(config_.flow_shift, levels);
    if (config_.shift_terminal.value_or(0) != 0) levels = stretched_to(*config_.shift_terminal, levels);
    if (std::abs(levels.front() - 1) < kBelowOne) levels.front() -= kBelowOne;
    for (double s : levels) timesteps.push_back(s * training);
    last = float(levels.back());
  } else {
    timesteps = spaced_timesteps({kName, config_.timestep_spacing, num_train_timesteps_, n, config_.steps_offset, true,
                                  0, config_.timestep_spacing != "trailing"});
    levels = interpolate(timesteps, table);
    last = table.front();
  }
  std::vector<float> sigmas(levels.begin(), levels.end());
  sigmas.push_back(config_.final_sigmas_type == "zero" ? 0 : last);
  num_inference_steps_ = int64_t(timesteps.size());
  set_schedule(timesteps, kInt64, o.device);
  set_sigmas(sigmas);
  restart();
  if (solver_p_) solver_p_->set_timesteps(num_inference_steps_.value(), o.device);
  last_sample_ = {};
  this_order_ = 0;
}

Tensor UniPCMultistepScheduler::convert(const Tensor& model_output, const Tensor& sample) const {
  const std::string& type = config_.prediction_type;
  if (!config_.predict_x0) {
    Level at = level_at(*step_index_);
    return predicted_epsilon(type, model_output, sample, at.alpha, at.sigma);
  }
  Tensor original = original_of(type, model_output, sample);
  return config_.thresholding ? threshold_sample(original, config_.dynamic_thresholding_ratio, config_.sample_max_value)
                              : original;
}

StepOutput UniPCMultistepScheduler::advance(const Tensor& model_output, double timestep, const Tensor& input,
                                            const StepOptions&) {
  start_index(timestep);
  int64_t at = *step_index_, steps = int64_t(timestep_values_.size());
  auto& without = config_.disable_corrector;
  bool correct = at > 0 && last_sample_ && std::find(without.begin(), without.end(), at - 1) == without.end();
  Tensor converted = convert(model_output, input);
  Tensor sample = correct ? update(at - 1, this_order_, last_sample_, converted).to(input.dtype()) : input;
  remember(converted);
  int64_t order = config_.lower_order_final ? std::min(config_.solver_order, steps - at) : config_.solver_order;
  this_order_ = std::min(order, lower_order_nums_ + 1);
  last_sample_ = sample;
  Tensor predicted =
      solver_p_ ? solver_p_->step(model_output, timestep, sample).prev_sample : update(at, this_order_, sample, {});
  Tensor prev_sample = predicted.to(sample.dtype());
  lower_order_nums_ = std::min(lower_order_nums_ + 1, config_.solver_order);
  ++*step_index_;
  return {prev_sample, {}};
}

// Section 3 of the paper; the coefficients rho solve R rho = b so that the update has the order.
Tensor UniPCMultistepScheduler::update(int64_t from, int64_t order, const Tensor& sample,
                                       const Tensor& corrected) const {
  Level t = level_at(from + 1), s0 = level_at(from);
  float h = t.lambda - s0.lambda, hh = config_.predict_x0 ? -h : h;
  float phi_1 = rounded_expm1(hh), phi_k = phi_1 / hh - 1, B_h = config_.solver_type == "bh1" ? hh : phi_1;
  const Tensor& m0 = history(0);
  std::vector<float> rks, b;
  Tensors D1s;
  for (int64_t i = 1; i < order; ++i) {
    rks.push_back((level_at(from - i).lambda - s0.lambda) / h);
    D1s.push_back((history(size_t(i)) - m0) / rks.back());
  }
  rks.push_back(1);
  double factorial = 1;
  for (int64_t i = 1; i <= order; ++i) {
    b.push_back(phi_k * float(factorial) / B_h);
    factorial *= double(i + 1);
    phi_k = phi_k / hh - float(1 / factorial);
  }
  // The predictor lacks the newest output, hence the last row and column.
  auto n = size_t(corrected ? order : order - 1);
  std::vector<float> rhos{0.5f};
  if (n > 1) {
    std::vector<float> R;
    for (size_t i = 0; i < n; ++i)
      for (size_t j = 0; j < n; ++j) R.push_back(std::pow(rks[j], float(i)));
    rhos = solved(std::move(R), {b.begin(), b.begin() + int64_t(n)});
  }
  // A corrector of order 1 and a predictor of order 2 have one coefficient, 1/2 as in the paper's code.
  Tensor residual;
  for (size_t i = 0; i < D1s.size(); ++i) {
    Tensor part = rhos[i] * D1s[i];
    residual = residual ? residual + part : part;
  }
  if (corrected) {
    Tensor part = rhos.back() * (corrected - m0);
    residual = residual ? residual + part : part;
  }
  float kept = config_.predict_x0 ? t.sigma / s0.sigma : t.alpha / s0.alpha,
        scale = config_.predict_x0 ? t.alpha : t.sigma;
  Tensor x = kept * sample - scale * phi_1 * m0;
  return residual ? x - scale * B_h * residual : x;
}

}  // namespace sf::diffusion
