#include "scaffolding/diffusion/schedulers/scheduling_pndm.h"

#include <algorithm>
#include <cmath>

#include "scaffolding/core/error.h"
#include "scaffolding/diffusion/schedulers/factor.h"
#include "scaffolding/diffusion/schedulers/timestep_spacing.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion {

namespace {
constexpr int64_t kOrder = 4;
}

Fields PNDMConfig::fields() {
  Fields f = BetaConfig::fields();
  f.insert(f.end(), {{"skip_prk_steps", &skip_prk_steps},
                     {"set_alpha_to_one", &set_alpha_to_one},
                     {"prediction_type", &prediction_type},
                     {"timestep_spacing", &timestep_spacing},
                     {"steps_offset", &steps_offset}});
  return f;
}

std::vector<RunState> PNDMScheduler::run_state() {
  return {
      {"ets", &ets_}, {"counter", &counter_}, {"cur_model_output", &cur_model_output_}, {"cur_sample", &cur_sample_}};
}

PNDMScheduler::PNDMScheduler(PNDMConfig config) : config_(std::move(config)) {
  check_betas(kName, config_);
  check_one_of(kName, "prediction_type", config_.prediction_type, {"epsilon", "v_prediction"});
  check_one_of(kName, "timestep_spacing", config_.timestep_spacing, {"linspace", "leading", "trailing"});
  set_betas(kName, config_, false, config_.set_alpha_to_one);
}

void PNDMScheduler::make_schedule(const TimestepOptions& o, int64_t n) {
  SF_CHECK(config_.skip_prk_steps || n >= kOrder, kName,
           ": the Runge-Kutta steps need num_inference_steps of at least ", kOrder, ", got ", n,
           "; pass skip_prk_steps=true for fewer");
  auto descending = spaced_timesteps({kName, config_.timestep_spacing, num_train_timesteps_, n, config_.steps_offset});
  std::vector<int64_t> prk;
  std::vector<double> timesteps;
  if (config_.skip_prk_steps) {
    // The second timestep is visited twice: the first step is made again with the mean of two outputs.
    timesteps = descending;
    if (timesteps.size() > 1) timesteps.insert(timesteps.begin() + 1, timesteps[1]);
  } else {
    // Four calls for each of the first three steps: at its timestep, twice halfway, at the next one.
    std::vector<int64_t> pairs;
    for (size_t i = kOrder; i-- > 0;)
      for (int64_t half : {int64_t(0), num_train_timesteps_ / n / 2}) pairs.push_back(int64_t(descending[i]) + half);
    pairs.pop_back();
    for (int64_t t : pairs) prk.insert(prk.end(), 2, t);
    prk = {prk.rbegin() + 1, prk.rend() - 1};
    timesteps.assign(prk.begin(), prk.end());
    timesteps.insert(timesteps.end(), descending.begin() + kOrder - 1, descending.end());
  }
  num_inference_steps_ = n;
  set_schedule(timesteps, kInt64, o.device);
  prk_timesteps_ = prk;
  method_.clear();
  counter_ = 0;
  ets_.clear();
  cur_model_output_ = cur_sample_ = {};
}

StepOutput PNDMScheduler::advance(const Tensor& model_output, double timestep, const Tensor& sample,
                                  const StepOptions&) {
  // Steps between training timesteps (leading with an offset) may lie beyond them by less than a step.
  SF_CHECK(timestep == std::trunc(timestep), kName, ": timestep must be an integer, got ", timestep);
  bool warm_up = method_.empty() ? counter_ < int64_t(prk_timesteps_.size()) : method_ == "prk";
  method_.clear();
  Tensor prev_sample = warm_up ? runge_kutta(model_output, int64_t(timestep), sample)
                               : multistep(model_output, int64_t(timestep), sample);
  ++counter_;
  return {prev_sample, {}};
}

Tensor PNDMScheduler::runge_kutta(const Tensor& output, int64_t timestep, const Tensor& sample) {
  int64_t prev = timestep - (counter_ % 2 ? 0 : num_train_timesteps_ / *num_inference_steps_ / 2);
  SF_CHECK(counter_ / 4 * 4 < int64_t(prk_timesteps_.size()), kName, ": a run has ", prk_timesteps_.size(),
           " Runge-Kutta steps; this would be another");
  int64_t from = prk_timesteps_[size_t(counter_ / 4 * 4)];
  Tensor model_output = output;
  switch (counter_ % 4) {
    case 0:
      cur_model_output_ = cur_model_output_ ? cur_model_output_ + model_output * (1.0 / 6) : model_output * (1.0 / 6);
      ets_.push_back(model_output);
      cur_sample_ = sample;
      break;
    case 1:
    case 2: cur_model_output_ = cur_model_output_ + model_output * (1.0 / 3); break;
    default: model_output = cur_model_output_ + model_output * (1.0 / 6); cur_model_output_ = {};
  }
  return previous(cur_sample_, from, prev, model_output);
}

// Adams-Bashforth; the orders below the fourth only begin a run.
Tensor PNDMScheduler::multistep(const Tensor& output, int64_t timestep, const Tensor& input) {
  SF_CHECK(config_.skip_prk_steps || ets_.size() >= 3, kName,
           ": multistep steps come after three Runge-Kutta steps, got ", ets_.size(),
           " earlier outputs; pass skip_prk_steps=true to begin without");
  int64_t ratio = num_train_timesteps_ / *num_inference_steps_;
  int64_t from = timestep, prev = timestep - ratio;
  Tensor model_output = output, sample = input;
  if (counter_ != 1) {
    if (ets_.size() > kOrder - 1) ets_.erase(ets_.begin(), ets_.end() - (kOrder - 1));
    ets_.push_back(model_output);
  } else {
    prev = timestep;
    from = timestep + ratio;
  }
  auto e = [&](size_t back) { return ets_[ets_.size() - back]; };
  if (ets_.size() == 1 && counter_ == 0) {
    cur_sample_ = sample;
  } else if (ets_.size() == 1 && counter_ == 1) {
    model_output = (model_output + e(1)) / 2;
    sample = cur_sample_;
    cur_sample_ = {};
  } else if (ets_.size() == 2) {
    model_output = (e(1) * 3 - e(2)) / 2;
  } else if (ets_.size() == 3) {
    model_output = (e(1) * 23 - e(2) * 16 + e(3) * 5) / 12;
  } else {
    model_output = (e(1) * 55 - e(2) * 59 + e(3) * 37 - e(4) * 9) * (1.0 / 24);
  }
  return previous(sample, from, prev, model_output);
}

// Equation 9, with the roots cancelled as in the paper's code.
Tensor PNDMScheduler::previous(const Tensor& sample, int64_t timestep, int64_t prev_timestep,
                               const Tensor& output) const {
  auto alpha = alpha_at<float>(training_timestep(double(timestep))), alpha_prev = alpha_at<float>(prev_timestep);
  float beta = 1 - alpha, beta_prev = 1 - alpha_prev;
  Tensor epsilon = predicted_epsilon(config_.prediction_type, output, sample, std::sqrt(alpha), std::sqrt(beta));
  float scale = std::sqrt(alpha_prev / alpha);
  float denominator = alpha * std::sqrt(beta_prev) + std::sqrt(alpha * beta * alpha_prev);
  return scale * sample - (alpha_prev - alpha) * epsilon / denominator;
}

}  // namespace sf::diffusion
