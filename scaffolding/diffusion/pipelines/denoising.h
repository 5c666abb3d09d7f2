// What the loops of all pipelines are made of: schedules, guidance, steps with their callback, and the stop on demand.
#pragma once
#include <functional>
#include <map>
#include <stop_token>

#include "scaffolding/core/error.h"
#include "scaffolding/diffusion/pipelines/components.h"
#include "scaffolding/diffusion/schedulers/scheduler.h"

namespace sf::diffusion {

// A run was stopped before it was done: see GenerationOptions::stop.
struct Stopped : RuntimeError {
  using RuntimeError::RuntimeError;
};

// Batched: one call of the denoiser with both halves, 2 B samples. Sequential: two calls, with half the activations in memory.
enum class GuidanceMode : uint8_t { Batched, Sequential };
GuidanceMode guidance_mode(std::string_view name);  // "batched", "sequential"; ValueError otherwise

struct Guidance {
  double scale = 7.5;  // above 1: on
  double rescale = 0;  // rescale_noise_cfg's share
  GuidanceMode mode = GuidanceMode::Batched;
  bool embedded = false;  // a distilled model takes the scale as an input, and is called once
  bool on() const { return scale > 1 && !embedded; }
};

// What a callback sees at the end of a step, and may change. Tensors have diffusers' names; with guidance on, those with a negative and a positive
// half hold both, the negative one first.
struct StepState {
  int64_t step = 0;
  Tensor timestep;  // 0-d
  std::map<std::string, Tensor*> tensors;
  Guidance& guidance;
  bool interrupt = false;  // true: the steps that remain are left out, and what is there is decoded
};
using StepCallback = std::function<void(StepState& state)>;
using StepProgress = std::function<void(int64_t done, int64_t total)>;

// The part of a schedule that is run.
struct StepSchedule {
  Tensor timesteps;            // of the run
  std::vector<double> values;  // the same on the host
  int64_t num_inference_steps = 0;
  size_t size() const { return values.size(); }
  Tensor timestep(size_t i) const { return timesteps.select(0, int64_t(i)); }
  Tensor timestep_on_host(size_t i) const { return scalar_tensor(values[i], timesteps.dtype()); }  // for those who read it
  void keep(int64_t begin, int64_t end);
};

struct ScheduleOptions {
  int64_t num_inference_steps = 50;
  std::optional<std::vector<double>> timesteps, sigmas;  // one's own, where the scheduler takes them
  Device device = {};
};
// set_timesteps; ValueError for timesteps and sigmas at once, and for those that the scheduler does not take.
StepSchedule make_schedule(const char* who, Scheduler& scheduler, const ScheduleOptions& options);
// The last `strength` of the schedule: a picture's noise is taken away from there on. ValueError where no step is left.
void start_at_strength(const char* who, Scheduler& scheduler, StepSchedule& schedule, double strength);

// eta and generator, where the scheduler's step takes them.
StepOptions step_options(const Scheduler& scheduler, double eta, const Generators& generator);

// Samples of one batch with what the denoiser is told about them. With guidance on, all but `timestep_cond` have 2 B samples, negative ones first.
struct Conditioning {
  Tensor prompt_embeds, timestep_cond, text_embeds, time_ids;
  Tensor channels;  // [.., c, h, w]: what an inpainting model takes besides the latents
};
// The guided output of the denoiser for latents[B, C, h, w] at step i.
Tensor predict_noise(Denoiser& unet, Scheduler& scheduler, const Tensor& latents, const StepSchedule& schedule, size_t i, const Conditioning& conditioning,
                     const Guidance& guidance);

// Of a distilled model: guidance_scale - 1 for each of the samples as [batch, dim] (Luo et al. 2023, arXiv 2310.04378). Undefined for dim 0.
Tensor guidance_scale_embedding(double guidance_scale, int64_t batch, int64_t dim, DType dtype, Device device);

// Ends of steps: tells progress, calls back, and looks whether the run should stop.
class StepLoop {
 public:
  StepLoop(const char* who, Scheduler& scheduler, const StepSchedule& schedule, StepCallback callback, StepProgress progress, std::stop_token stop);
  bool interrupted() const { return interrupt_; }
  void begin_step() const;  // Stopped where that was asked for
  void end_step(size_t i, Guidance& guidance, std::map<std::string, Tensor*> tensors);

 private:
  const char* who_;
  const StepSchedule& schedule_;
  int64_t order_, warmup_, done_ = 0;
  StepCallback callback_;
  StepProgress progress_;
  std::stop_token stop_;
  bool interrupt_ = false;
};

}  // namespace sf::diffusion
