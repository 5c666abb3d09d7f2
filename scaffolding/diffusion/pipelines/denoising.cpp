#include "scaffolding/diffusion/pipelines/denoising.h"

#include <algorithm>
#include <cmath>

#include "scaffolding/backend/cpu/lean_memory.h"
#include "scaffolding/diffusion/guidance.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion {

GuidanceMode guidance_mode(std::string_view name) {
  if (name == "batched") return GuidanceMode::Batched;
  if (name == "sequential") return GuidanceMode::Sequential;
  fail("guidance_mode: must be 'batched' or 'sequential', got '", name, "'");
}

void StepSchedule::keep(int64_t begin, int64_t end) {
  timesteps = timesteps.slice(0, begin, end);
  values = {values.begin() + begin, values.begin() + end};
}

StepSchedule make_schedule(const char* who, Scheduler& scheduler, const ScheduleOptions& o) {
  SF_CHECK(!o.timesteps || !o.sigmas, who, ": takes timesteps or sigmas, not both");
  TimestepOptions options{.device = o.device, .timesteps = o.timesteps, .sigmas = o.sigmas};
  if (!o.timesteps && !o.sigmas) options.num_inference_steps = o.num_inference_steps;
  scheduler.set_timesteps(options);
  StepSchedule schedule{scheduler.timesteps(), scheduler.timesteps().to_vector(), o.num_inference_steps};
  if (o.timesteps || o.sigmas) schedule.num_inference_steps = int64_t(schedule.size());
  return schedule;
}

void start_at_strength(const char* who, Scheduler& scheduler, StepSchedule& schedule, double strength) {
  SF_CHECK(strength >= 0 && strength <= 1, who, ": strength must be in [0, 1], got ", strength);
  int64_t n = schedule.num_inference_steps, steps = std::min(int64_t(double(n) * strength), n), start = n - steps;
  SF_CHECK(steps >= 1, who, ": strength ", strength, " leaves no step of ", n, "; use more steps or a greater strength");
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

Tensor predict_noise(Denoiser& unet, Scheduler& scheduler, const Tensor& latents, const StepSchedule& schedule, size_t i, const Conditioning& c,
                     const Guidance& guidance) {
  cpu::LeanMemory lean;
  Tensor timestep = schedule.timestep(i), input = scheduler.scale_model_input(latents, schedule.values[i]);
  auto call = [&](const Tensor& sample, const Tensor& embeds, const Tensor& text, const Tensor& ids, const Tensor& channels) {
    return unet.predict({channels ? cat({sample, channels}, 1) : sample, timestep, embeds, c.timestep_cond, text, ids});
  };
  if (!guidance.on()) return call(input, c.prompt_embeds, c.text_embeds, c.time_ids, c.channels);
  Tensor uncond, text;
  if (guidance.mode == GuidanceMode::Batched) {
    Tensors halves = call(cat({input, input}, 0), c.prompt_embeds, c.text_embeds, c.time_ids, c.channels).chunk(2, 0);
    uncond = halves[0], text = halves[1];
  } else {
    int64_t B = latents.size(0);
    auto half = [&](const Tensor& t, int64_t i) { return t ? t.narrow(0, i * B, B) : t; };
    auto of = [&](int64_t i) { return call(input, half(c.prompt_embeds, i), half(c.text_embeds, i), half(c.time_ids, i), half(c.channels, i)); };
    uncond = of(0), text = of(1);
  }
  Tensor noise = uncond + guidance.scale * (text - uncond);
  return guidance.rescale > 0 ? rescale_noise_cfg(noise, text, guidance.rescale) : noise;
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

StepLoop::StepLoop(const char* who, Scheduler& scheduler, const StepSchedule& schedule, StepCallback callback, StepProgress progress, std::stop_token stop)
    : who_(who),
      schedule_(schedule),
      order_(scheduler.order()),
      warmup_(std::max<int64_t>(int64_t(schedule.size()) - schedule.num_inference_steps * scheduler.order(), 0)),
      callback_(std::move(callback)),
      progress_(std::move(progress)),
      stop_(std::move(stop)) {
  if (progress_) progress_(0, schedule.num_inference_steps);
}

void StepLoop::begin_step() const {
  if (stop_.stop_requested()) fail<Stopped>(who_, ": stopped after ", done_, " of ", schedule_.num_inference_steps, " steps");
}

void StepLoop::end_step(size_t i, Guidance& guidance, std::map<std::string, Tensor*> tensors) {
  if (callback_) {
    StepState state{.step = int64_t(i), .timestep = schedule_.timestep(i), .tensors = std::move(tensors), .guidance = guidance};
    callback_(state);
    interrupt_ = state.interrupt;
  }
  int64_t n = int64_t(i) + 1;
  if (n == int64_t(schedule_.size()) || (n > warmup_ && n % order_ == 0)) {
    ++done_;
    if (progress_) progress_(std::min(done_, schedule_.num_inference_steps), schedule_.num_inference_steps);
  }
}

}  // namespace sf::diffusion
