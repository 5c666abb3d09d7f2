#include "scaffolding/diffusion/schedulers/scheduling_flow_match_euler_discrete.h"

#include <cmath>

#include "scaffolding/core/error.h"
#include "scaffolding/diffusion/schedulers/factor.h"
#include "scaffolding/diffusion/schedulers/multistep.h"
#include "scaffolding/diffusion/schedulers/timestep_spacing.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion {

Fields FlowMatchEulerDiscreteConfig::fields() {
  return {{"num_train_timesteps", &num_train_timesteps},
          {"shift", &shift},
          {"use_dynamic_shifting", &use_dynamic_shifting},
          {"base_shift", &base_shift},
          {"max_shift", &max_shift},
          {"base_image_seq_len", &base_image_seq_len},
          {"max_image_seq_len", &max_image_seq_len},
          {"invert_sigmas", &invert_sigmas},
          {"shift_terminal", &shift_terminal},
          {"use_karras_sigmas", &use_karras_sigmas},
          {"use_exponential_sigmas", &use_exponential_sigmas},
          {"use_beta_sigmas", &use_beta_sigmas},
          {"time_shift_type", &time_shift_type},
          {"stochastic_sampling", &stochastic_sampling}};
}

FlowMatchEulerDiscreteScheduler::FlowMatchEulerDiscreteScheduler(FlowMatchEulerDiscreteConfig config)
    : config_(std::move(config)) {
  BetaConfig size;
  size.num_train_timesteps = config_.num_train_timesteps;
  check_betas(kName, size);
  check_one_of(kName, "time_shift_type", config_.time_shift_type, {"exponential", "linear"});
  SF_CHECK(!config_.shift_terminal || (*config_.shift_terminal >= 0 && *config_.shift_terminal < 1), kName,
           ": shift_terminal must be at least 0 and below 1, got ", config_.shift_terminal.value_or(0));
  sigma_curve(kName, config_.use_karras_sigmas, config_.use_exponential_sigmas, config_.use_beta_sigmas);
  set_shift(config_.shift);
  num_train_timesteps_ = config_.num_train_timesteps;
  auto most = float(num_train_timesteps_), shift = float(shift_);
  std::vector<double> timesteps;
  std::vector<float> sigmas;
  for (int64_t t = num_train_timesteps_; t > 0; --t) {
    float s = float(t) / most;
    if (!config_.use_dynamic_shifting) s = shift * s / (1 + float(shift_ - 1) * s);
    sigmas.push_back(s);
    timesteps.push_back(double(s * most));
  }
  sigma_max_ = double(sigmas.front());
  sigma_min_ = double(sigmas.back());
  set_schedule(timesteps, kFloat32);
  set_sigmas(sigmas);
}

void FlowMatchEulerDiscreteScheduler::set_shift(double shift) {
  SF_CHECK(shift > 0 && std::isfinite(shift), kName, ": shift must be positive, got ", shift);
  shift_ = shift;
}

void FlowMatchEulerDiscreteScheduler::make_schedule(const TimestepOptions& o, int64_t n) {
  SF_CHECK(!config_.use_dynamic_shifting || o.mu, kName, ": use_dynamic_shifting needs set_timesteps' mu");
  for (auto [name, list] : {std::pair{"sigmas", &o.sigmas}, {"timesteps", &o.timesteps}}) {
    if (!*list) continue;
    auto length = int64_t((*list)->size());
    SF_CHECK(n == 0 || n == length, kName, ": ", name, " must have as many entries as there are steps, ", n, ", got ",
             length);
    n = length;
  }
  auto training = double(num_train_timesteps_);
  std::vector<double> levels;
  if (o.sigmas) {
    levels = *o.sigmas;
  } else {
    levels = o.timesteps ? *o.timesteps : linspace64(sigma_max_ * training, sigma_min_ * training, n);
    for (double& s : levels) s /= training;
  }
  levels = config_.use_dynamic_shifting ? time_shifted(config_.time_shift_type, *o.mu, levels)
                                        : flow_shifted(shift_, levels);
  if (config_.shift_terminal.value_or(0) != 0) levels = stretched_to(*config_.shift_terminal, levels);
  SigmaCurve curve =
      sigma_curve(kName, config_.use_karras_sigmas, config_.use_exponential_sigmas, config_.use_beta_sigmas);
  if (curve != SigmaCurve::None) levels = curve_sigmas(curve, levels.back(), levels.front(), n);
  std::vector<float> sigmas(levels.begin(), levels.end());
  if (config_.invert_sigmas)
    for (float& s : sigmas) s = 1 - s;
  std::vector<double> timesteps;
  for (float s : sigmas) timesteps.push_back(double(s * float(training)));
  if (o.timesteps && !config_.invert_sigmas) timesteps = *o.timesteps;
  sigmas.push_back(config_.invert_sigmas ? 1 : 0);
  num_inference_steps_ = n;
  set_schedule(timesteps, kFloat32, o.device);
  set_sigmas(sigmas);
}

StepOutput FlowMatchEulerDiscreteScheduler::advance(const Tensor& model_output, double timestep, const Tensor& input,
                                                    const StepOptions& o) {
  start_index(timestep);
  Tensor sample = input.to(kFloat32), current, next, dt;
  if (o.per_token_timesteps) {
    // Each token goes down to the next lower noise level of the schedule; diffusers' step is their difference,
    // positive.
    const Tensor& tokens = o.per_token_timesteps;
    SF_CHECK(sample.ndim() == 3 && tokens.shape() == Shape({sample.size(0), sample.size(1)}), kName,
             ": per_token_timesteps must be [B, tokens] of sample [B, tokens, C] ", sample.shape(), ", got ",
             tokens.shape());
    std::vector<float> from, to;
    for (double t : tokens.to_vector()) {
      from.push_back(float(t) / float(num_train_timesteps_));
      float lower = 0;
      for (float s : sigma_values_)
        if (s < from.back() - 1e-6f) lower = std::max(lower, s);
      to.push_back(lower);
    }
    Shape shape{sample.size(0), sample.size(1), 1};
    current = tensor(from, shape, kFloat32).to(sample.device());
    next = tensor(to, shape, kFloat32).to(sample.device());
    dt = current - next;
  } else {
    float a = sigma_values_[place()], b = sigma_values_[place() + 1];
    current = scalar_tensor(a, kFloat64);
    next = scalar_tensor(b, kFloat64);
    dt = scalar_tensor(b - a, kFloat64);
  }
  Tensor prev_sample;
  if (config_.stochastic_sampling) {
    Tensor original = sample - current * model_output;
    Tensor noise = randn_tensor(sample.shape(), o.generator, sample.device(), kFloat32);
    prev_sample = (1 - next) * original + next * noise;
  } else {
    prev_sample = sample + dt * model_output;
  }
  ++*step_index_;
  return {o.per_token_timesteps ? prev_sample : prev_sample.to(model_output.dtype()), {}};
}

Tensor FlowMatchEulerDiscreteScheduler::add_noise(const Tensor& original_samples, const Tensor& noise,
                                                  const Tensor& timesteps) {
  check_noise(original_samples, noise);
  std::vector<double> values;
  for (int64_t i : indices_for(timesteps)) values.push_back(double(sigma_at(i)));
  Tensor sigma = per_sample(kName, values, original_samples);
  return sigma * noise + (1 - sigma) * original_samples;
}

}  // namespace sf::diffusion
