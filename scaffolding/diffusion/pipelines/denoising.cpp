#include "scaffolding/diffusion/pipelines/denoising.h"

#include <algorithm>
#include <cmath>

#include "scaffolding/backend/cpu/lean_memory.h"
#include "scaffolding/core/error.h"
#include "scaffolding/diffusion/guidance.h"
#include "scaffolding/diffusion/schedulers/scheduling_flow_match_euler_discrete.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion {

GuidanceMode guidance_mode(std::string_view name) {
  if (name == "batched") return GuidanceMode::Batched;
  if (name == "sequential") return GuidanceMode::Sequential;
  fail("guidance_mode: must be 'batched' or 'sequential', got '", name, "'");
}

const char* name_of(GuidanceMode mode) { return mode == GuidanceMode::Batched ? "batched" : "sequential"; }

void StepSchedule::keep(int64_t begin, int64_t end) {
  timesteps = timesteps.slice(0, begin, end);
  if (told) told = told.slice(0, begin, end);
  values = {values.begin() + begin, values.begin() + end};
}

namespace {

// Flow matching takes what a model predicts for a velocity from noise to signal; a config that was another sampler's
// says what its model predicts.
void check_prediction(const char* who, Scheduler& scheduler) {
  if (std::string_view(scheduler.name()) != FlowMatchEulerDiscreteScheduler::kName) return;
  const io::Object config = scheduler.config();
  auto* said = config.find("prediction_type");
  SF_CHECK(!said || !said->is(io::Object::String) || said->text() == "flow_prediction", who, ": ", scheduler.name(),
           " is for models that predict flow, and this one's config says prediction_type='", said->text(), "'");
}

}  // namespace

StepSchedule make_schedule(const char* who, Scheduler& scheduler, const ScheduleOptions& o) {
  SF_CHECK(!o.timesteps || !o.sigmas, who, ": takes timesteps or sigmas, not both");
  check_prediction(who, scheduler);
  TimestepOptions options{.device = o.device, .timesteps = o.timesteps, .sigmas = o.sigmas};
  if (!o.timesteps && !o.sigmas) options.num_inference_steps = o.num_inference_steps;
  if (scheduler.timestep_parameters().find("mu") != std::string_view::npos) options.mu = o.mu;
  scheduler.set_timesteps(options);
  StepSchedule schedule{.timesteps = scheduler.timesteps(),
                        .values = scheduler.timesteps().to_vector(),
                        .num_inference_steps = o.num_inference_steps};
  if (o.timesteps || o.sigmas) schedule.num_inference_steps = int64_t(schedule.size());
  return schedule;
}

double flow_shift(Scheduler& scheduler, int64_t tokens) {
  const io::Object config = scheduler.config();
  auto number = [&](const char* field, double otherwise) {
    auto* v = config.find(field);
    return v && !v->is(io::Object::None) ? v->as_float() : otherwise;
  };
  const double from = number("base_image_seq_len", 256), to = number("max_image_seq_len", 4096),
               least = number("base_shift", 0.5), most = number("max_shift", 1.15);
  const double slope = (most - least) / (to - from);
  return double(tokens) * slope + (least - slope * from);
}

void start_at_strength(const char* who, Scheduler& scheduler, StepSchedule& schedule, double strength,
                       PartOfStep part) {
  SF_CHECK(strength >= 0 && strength <= 1, who, ": strength must be in [0, 1], got ", strength);
  const int64_t n = schedule.num_inference_steps;
  const double share = std::min(double(n) * strength, double(n));
  const int64_t start = part == PartOfStep::Run ? int64_t(double(n) - share) : n - int64_t(share), steps = n - start;
  SF_CHECK(steps >= 1, who, ": strength ", strength, " leaves no step of ", n,
           "; use more steps or a greater strength");
  schedule.keep(start * scheduler.order(), int64_t(schedule.size()));
  schedule.num_inference_steps = steps;
  scheduler.set_begin_index(start * scheduler.order());
}

StepOptions step_options(const Scheduler& scheduler, double eta, const Generators& generator) {
  auto takes = [&](const char* name) { return scheduler.step_parameters().find(name) != std::string_view::npos; };
  StepOptions options;
  if (takes("eta")) options.eta = eta;
  if (takes("generator")) options.generator = generator;
  return options;
}

namespace {

Tensor looked_at(Tensor output, const Guidance& guidance, int64_t channels) {
  if (guidance.wide) output = output.to(kFloat32);
  return channels && output.size(1) > channels ? output.narrow(1, 0, channels) : output;
}

// The norm of each sample of [B, ...] as [B, 1, ...].
Tensor norms(const Tensor& samples) {
  Shape dims;
  for (int64_t d = 1; d < samples.ndim(); ++d) dims.push_back(d);
  return sqrt(square(samples).sum(dims, true));
}

Tensor guided(const Tensor& uncond, const Tensor& text, const Guidance& guidance) {
  Tensor noise = (guidance.beyond ? text : uncond) + guidance.scale * (text - uncond);
  if (guidance.most_norm > 0) {
    const Tensor most = norms(text) * guidance.most_norm, norm = norms(noise);
    noise = noise * where(gt(norm, most), most / norm, ones_like(norm));
  }
  return guidance.rescale > 0 ? rescale_noise_cfg(noise, text, guidance.rescale) : noise;
}

}  // namespace

Tensor guided(const Tensor& output, const Guidance& guidance, int64_t output_channels) {
  const Tensor seen = looked_at(output, guidance, output_channels);
  if (!guidance.on()) return seen;
  const Tensors halves = seen.chunk(2, 0);
  return guided(halves[0], halves[1], guidance);
}

Tensor model_input(Denoiser& denoiser, Scheduler& scheduler, const Tensor& latents, double timestep,
                   const Guidance& guidance) {
  const Tensor input = scheduler.scale_model_input(latents, timestep);
  const bool narrows = guidance.wide && input.dtype() == kFloat32 && is_reduced(denoiser.dtype());
  return narrows ? input.to(denoiser.dtype()) : input;
}

Tensor predict_noise(Denoiser& denoiser, Scheduler& scheduler, const Tensor& latents, const StepSchedule& schedule,
                     size_t i, const DenoiserCall& told, const Guidance& guidance, int64_t output_channels) {
  cpu::LeanMemory lean;
  const Tensor timestep = schedule.told_timestep(i),
               input = model_input(denoiser, scheduler, latents, schedule.values[i], guidance);
  auto call = [&](const DenoiserCall& arguments, const Tensor& sample) {
    return denoiser.predict(arguments.with(sample, timestep));
  };
  if (!guidance.on()) return guided(call(told, input), guidance, output_channels);
  if (guidance.mode == GuidanceMode::Batched)
    return guided(call(told, cat({input, input}, 0)), guidance, output_channels);
  const int64_t B = latents.size(0);
  const Tensor uncond = looked_at(call(told.half(0, B), input), guidance, output_channels);
  return guided(uncond, looked_at(call(told.half(1, B), input), guidance, output_channels), guidance);
}

Tensor guidance_scale_embedding(double guidance_scale, int64_t batch, int64_t dim, DType dtype, Device device) {
  if (dim == 0) return {};
  int64_t half = dim / 2;
  Tensor frequencies = exp(arange(0, half, 1, kFloat32) * -(std::log(10000.0f) / float(half - 1)));
  Tensor x = float(guidance_scale - 1) * 1000.0f * frequencies;
  Tensor embedding = cat({sin(x), cos(x)}, 0);
  if (dim % 2) embedding = pad(embedding, {0, 1});
  return embedding.unsqueeze(0).expand({batch, dim}).contiguous().to(dtype).to(device);
}

}  // namespace sf::diffusion
