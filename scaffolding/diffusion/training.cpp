#include "scaffolding/diffusion/training.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "scaffolding/core/error.h"
#include "scaffolding/diffusion/schedulers/scheduling_flow_match_euler_discrete.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion {

Fields TrainingOptions::fields() {
  return {{"prediction_type", &prediction_type},
          {"snr_gamma", &snr_gamma},
          {"noise_offset", &noise_offset},
          {"input_perturbation", &input_perturbation},
          {"condition_dropout", &condition_dropout},
          {"weighting_scheme", &weighting_scheme},
          {"logit_mean", &logit_mean},
          {"logit_std", &logit_std},
          {"mode_scale", &mode_scale},
          {"timestep_bias_strategy", &timestep_bias_strategy},
          {"timestep_bias_multiplier", &timestep_bias_multiplier},
          {"timestep_bias_portion", &timestep_bias_portion},
          {"timestep_bias_begin", &timestep_bias_begin},
          {"timestep_bias_end", &timestep_bias_end}};
}

namespace {

const char* const kWho = "training_batch";

std::string prediction_type_of(Scheduler& scheduler, const TrainingOptions& o) {
  const bool flow = dynamic_cast<FlowMatchEulerDiscreteScheduler*>(&scheduler);
  SF_CHECK_AS(TypeError, flow || dynamic_cast<AlphaScheduler*>(&scheduler), kWho, ": ", scheduler.name(),
              " is no scheduler to train with; take DDPMScheduler.from_config(scheduler.config)");
  std::string type = "epsilon";
  io::Object config = scheduler.config();
  if (auto* entry = config.find("prediction_type"); entry && entry->is(io::Object::String)) type = entry->text();
  if (flow) type = "flow_prediction";
  if (o.prediction_type) type = *o.prediction_type;
  check_one_of(kWho, "prediction_type", type, {"epsilon", "v_prediction", "sample", "flow_prediction"});
  SF_CHECK(flow == (type == "flow_prediction"), kWho, ": prediction_type ", type, " does not go with ",
           scheduler.name());
  return type;
}

void check(const TrainingOptions& o, bool flow) {
  check_one_of(kWho, "weighting_scheme", o.weighting_scheme, {"none", "sigma_sqrt", "logit_normal", "mode", "cosmap"});
  SF_CHECK(flow || o.weighting_scheme == "none", kWho, ": weighting_scheme is for flow matching, got '",
           o.weighting_scheme, "'");
  SF_CHECK(!flow || !o.snr_gamma, kWho, ": snr_gamma does not go with flow matching; it has weighting_scheme");
  SF_CHECK(o.snr_gamma.value_or(1) > 0, kWho, ": snr_gamma must be above 0, got ", o.snr_gamma.value_or(0));
  SF_CHECK(o.condition_dropout >= 0 && o.condition_dropout <= 1, kWho,
           ": condition_dropout must be between 0 and 1, got ", o.condition_dropout);
  SF_CHECK(std::isfinite(o.noise_offset) && std::isfinite(o.input_perturbation), kWho,
           ": noise_offset and input_perturbation must be finite, got ", o.noise_offset, " and ", o.input_perturbation);
  check_one_of(kWho, "timestep_bias_strategy", o.timestep_bias_strategy, {"none", "earlier", "later", "range"});
  SF_CHECK(!flow || o.timestep_bias_strategy == "none", kWho,
           ": timestep_bias_strategy does not go with flow matching; it has weighting_scheme");
  SF_CHECK(o.timestep_bias_multiplier > 0 && std::isfinite(o.timestep_bias_multiplier), kWho,
           ": timestep_bias_multiplier must be above 0, got ", o.timestep_bias_multiplier);
  SF_CHECK(o.timestep_bias_portion > 0 && o.timestep_bias_portion <= 1, kWho,
           ": timestep_bias_portion must be above 0 and at most 1, got ", o.timestep_bias_portion);
  SF_CHECK(o.logit_std > 0 && std::isfinite(o.logit_mean), kWho,
           ": logit_std must be above 0 and logit_mean finite, got ", o.logit_std, " and ", o.logit_mean);
}

// Numbers for each sample are drawn where the generator is.
Device place_of(const Generator& generator) { return generator ? generator->device : Device(); }

// Timesteps as places in the training schedule of flow matching, whose first is the noisiest.
std::vector<int64_t> drawn_places(int64_t batch, int64_t steps, const TrainingOptions& o, const Generator& generator) {
  std::vector<double> u;
  if (o.weighting_scheme == "logit_normal")
    u = sigmoid(randn({batch}, generator, kFloat32, place_of(generator)) * o.logit_std + o.logit_mean).to_vector();
  else u = rand({batch}, generator, kFloat32, place_of(generator)).to_vector();
  std::vector<int64_t> places;
  for (double x : u) {
    auto f = float(x);
    if (o.weighting_scheme == "mode") {
      float c = std::cos(float(std::numbers::pi) * f / 2);
      f = 1 - f - float(o.mode_scale) * (c * c - 1 + f);
    }
    places.push_back(std::clamp(int64_t(f * float(steps)), int64_t(0), steps - 1));
  }
  return places;
}

Tensor drawn_timesteps(int64_t batch, int64_t steps, const TrainingOptions& o, const Generator& generator) {
  if (o.timestep_bias_strategy == "none") return randint(0, steps, {batch}, generator, kInt64, place_of(generator));
  const auto portion = int64_t(o.timestep_bias_portion * double(steps));
  int64_t begin = o.timestep_bias_strategy == "later" ? steps - portion : 0,
          end = o.timestep_bias_strategy == "earlier" ? portion : steps;
  if (o.timestep_bias_strategy == "range") {
    begin = o.timestep_bias_begin;
    end = o.timestep_bias_end;
    SF_CHECK(begin >= 0 && begin < end && end <= steps, kWho,
             ": timestep_bias_begin and _end must be a part of the scheduler's ", steps, " timesteps, got ", begin,
             " and ", end);
  }
  std::vector<float> weights(size_t(steps), 1.f);
  std::fill(weights.begin() + begin, weights.begin() + end, float(o.timestep_bias_multiplier));
  return multinomial(tensor(weights, {steps}).to(place_of(generator)), batch, true, generator);
}

void flow_batch(TrainingBatch& b, Scheduler& scheduler, const Tensor& latents, const Tensor& noise,
                const Tensor& seen_noise, const TrainingOptions& o, const TrainingDraws& draws) {
  const int64_t steps = scheduler.num_train_timesteps();
  SF_CHECK(scheduler.timesteps().numel() == steps && !scheduler.num_inference_steps(), kWho,
           ": the scheduler has the schedule of a run; train with one whose set_timesteps was not called");
  if (!b.timesteps) {
    std::vector<double> schedule = scheduler.timesteps().to_vector(), chosen;
    for (int64_t i : drawn_places(latents.size(0), steps, o, draws.generator)) chosen.push_back(schedule[size_t(i)]);
    b.timesteps = tensor(chosen, {latents.size(0)}, kFloat32).to(latents.device());
  }
  b.noisy_latents = scheduler.add_noise(latents, seen_noise, b.timesteps);
  b.target = noise - latents;
  if (o.weighting_scheme != "sigma_sqrt" && o.weighting_scheme != "cosmap") return;
  std::vector<double> schedule = scheduler.timesteps().to_vector(), sigmas = scheduler.sigmas().to_vector(), weights;
  for (double t : b.timesteps.to_vector()) {
    double sigma = sigmas[size_t(std::find(schedule.begin(), schedule.end(), t) - schedule.begin())];
    weights.push_back(o.weighting_scheme == "cosmap" ? 2 / (std::numbers::pi * (1 - 2 * sigma + 2 * sigma * sigma))
                                                     : 1 / (sigma * sigma));
  }
  b.weights = tensor(weights, {latents.size(0)}, kFloat32).to(latents.device());
}

// min(SNR, gamma) is the weight of the loss of a prediction of the clean latents; the others are this one divided by
// what turns their error into that.
Tensor snr_weights(const Scheduler& scheduler, const Tensor& timesteps, const std::string& prediction_type,
                   double gamma) {
  std::vector<double> weights;
  for (double snr : compute_snr(scheduler, timesteps).to_vector()) {
    if (prediction_type == "epsilon") weights.push_back(std::min(1.0, gamma / snr));  // 1 where no signal is left
    else weights.push_back(std::min(snr, gamma) / (prediction_type == "v_prediction" ? snr + 1 : 1));
  }
  return tensor(weights, {timesteps.size(0)}, kFloat32).to(timesteps.device());
}

}  // namespace

TrainingBatch training_batch(Scheduler& scheduler, const Tensor& latents, const TrainingOptions& o,
                             const TrainingDraws& draws) {
  const std::string type = prediction_type_of(scheduler, o);
  const bool flow = type == "flow_prediction";
  check(o, flow);
  check_defined(kWho, "latents", latents);
  check_floating(kWho, "latents", latents);
  SF_CHECK(latents.ndim() >= 2 && latents.size(0) > 0, kWho,
           ": latents must be [B, C, ...] with at least one sample, got ", latents.shape());
  check_shape(kWho, "noise", draws.noise, latents.shape());
  check_shape(kWho, "timesteps", draws.timesteps, {latents.size(0)});
  const int64_t batch = latents.size(0);
  const Generators generators = draws.generator ? Generators{draws.generator} : Generators{};
  auto normal = [&](const Shape& shape) { return randn_tensor(shape, generators, latents.device(), latents.dtype()); };

  Tensor noise = draws.noise ? draws.noise : normal(latents.shape());
  if (o.noise_offset != 0) {
    Shape shared = Shape::filled(latents.ndim(), 1);
    shared[0] = batch;
    shared[1] = latents.size(1);
    noise = noise + normal(shared) * o.noise_offset;
  }
  Tensor seen = o.input_perturbation != 0 ? noise + normal(latents.shape()) * o.input_perturbation : noise;
  TrainingBatch b;
  b.timesteps = draws.timesteps;
  if (flow) {
    flow_batch(b, scheduler, latents, noise, seen, o, draws);
  } else {
    // Where they were drawn: schedulers look them up on the host, which for those on a GPU would wait for it.
    const Tensor drawn =
        draws.timesteps ? draws.timesteps : drawn_timesteps(batch, scheduler.num_train_timesteps(), o, draws.generator);
    b.timesteps = draws.timesteps ? drawn : drawn.to(latents.device());
    b.noisy_latents = scheduler.add_noise(latents, seen, drawn);
    b.target = type == "epsilon" ? noise : type == "sample" ? latents : scheduler.get_velocity(latents, noise, drawn);
    if (o.snr_gamma) b.weights = snr_weights(scheduler, drawn, type, *o.snr_gamma).to(latents.device());
  }
  if (o.condition_dropout > 0)
    b.dropped = lt(rand({batch}, draws.generator, kFloat32, place_of(draws.generator)), wrapped(o.condition_dropout))
                    .to(latents.device());
  return b;
}

Tensor training_loss(const Tensor& prediction, const TrainingBatch& b) {
  check_defined("training_loss", "prediction", prediction);
  check_shape("training_loss", "prediction", prediction, b.target.shape());
  Tensor p = prediction.to(kFloat32), target = b.target.to(kFloat32);
  if (!b.weights) return mse_loss(p, target);
  Shape rest;
  for (int64_t i = 1; i < p.ndim(); ++i) rest.push_back(i);
  return (mse_loss(p, target, "none").mean(rest) * b.weights).mean();
}

Tensor drop_condition(const Tensor& condition, const Tensor& dropped, const Tensor& null_condition) {
  if (!dropped) return condition;
  check_defined("drop_condition", "condition", condition);
  check_shape("drop_condition", "dropped", dropped, {condition.size(0)});
  Tensor null = null_condition ? null_condition : zeros({}, condition.dtype(), condition.device());
  SF_CHECK(broadcast_shapes("drop_condition", null.shape(), condition.shape()) == condition.shape(),
           "drop_condition: null_condition ", null.shape(), " does not broadcast to condition ", condition.shape());
  Shape shape = Shape::filled(condition.ndim(), 1);
  shape[0] = condition.size(0);
  return where(dropped.reshape(shape), null.to(condition.dtype()), condition);
}

Tensor diffusion_loss(const TrainedModel& model, Scheduler& scheduler, const Tensor& latents, const Tensor& condition,
                      const TrainingOptions& options, const TrainingDraws& draws, const Tensor& null_condition) {
  TrainingBatch b = training_batch(scheduler, latents, options, draws);
  return training_loss(
      model(b.noisy_latents, b.timesteps, condition ? drop_condition(condition, b.dropped, null_condition) : condition),
      b);
}

Tensor compute_snr(const Scheduler& scheduler, const Tensor& timesteps) {
  auto& alphas = scheduler.alphas_cumprod();
  SF_CHECK_AS(TypeError, !alphas.empty(), "compute_snr: ", scheduler.name(), " has no alphas_cumprod");
  std::vector<double> snr;
  for (double t : timesteps.to_vector()) {
    SF_CHECK(t >= 0 && t < double(alphas.size()), "compute_snr: timesteps must be 0 to ", alphas.size() - 1, ", got ",
             t);
    auto a = float(alphas[size_t(t)]);
    float ratio = std::sqrt(a) / std::sqrt(1 - a);
    snr.push_back(double(ratio * ratio));
  }
  return tensor(snr, timesteps.shape(), kFloat32).to(timesteps.device());
}

}  // namespace sf::diffusion
