// What the steps of all pipelines are made of: schedules, guidance, and the denoiser's guided output.
#pragma once
#include "scaffolding/diffusion/pipelines/components.h"
#include "scaffolding/diffusion/schedulers/scheduler.h"

namespace sf::diffusion {

// Batched: one call of the denoiser with both halves, 2 B samples. Sequential: two calls,
// with half the activations in memory.
enum class GuidanceMode : uint8_t { Batched, Sequential };
GuidanceMode guidance_mode(std::string_view name);  // "batched", "sequential"; ValueError otherwise
const char* name_of(GuidanceMode mode);

struct Guidance {
  double scale = 7.5;  // above 1: on
  double rescale = 0;  // rescale_noise_cfg's share
  GuidanceMode mode = GuidanceMode::Batched;
  bool embedded = false;  // a distilled model takes the scale as an input, and is called once
  bool varies = false;    // on whatever the scale, which the run changes from step to step
  bool wide = false;      // computed in float32, and so is the scheduler's step
  bool fixed = false;     // callbacks do not change the scale: their guidance_scale is something else (FLUX)
  bool ended = false;     // off from here on, whatever the scale
  bool beyond = false;    // the scale counts from the conditional output on: on above 0
  double most_norm = 0;   // above 0: of a sample's output, as a multiple of the conditional one's
  bool on() const { return (scale > (beyond ? 0 : 1) || varies) && !embedded && !ended; }
};

// The part of a schedule that is run.
struct StepSchedule {
  Tensor timesteps;            // of the run
  Tensor told;                 // what the denoiser is told in their place; absent: them
  std::vector<double> values;  // the same on the host as `timesteps`
  int64_t num_inference_steps = 0;
  size_t size() const { return values.size(); }
  Tensor timestep(size_t i) const { return timesteps.select(0, int64_t(i)); }
  Tensor told_timestep(size_t i) const { return (told ? told : timesteps).select(0, int64_t(i)); }
  // for those who read it
  Tensor timestep_on_host(size_t i) const { return scalar_tensor(values[i], timesteps.dtype()); }
  void keep(int64_t begin, int64_t end);
};

struct ScheduleOptions {
  int64_t num_inference_steps = 50;
  std::optional<std::vector<double>> timesteps, sigmas;  // one's own, where the scheduler takes them
  Device device = {};
  std::optional<double> mu = {};  // how far to shift to noise, of schedulers that take it: flow_shift()
};
// set_timesteps; ValueError for timesteps and sigmas at once, and for those that the scheduler does not take.
StepSchedule make_schedule(const char* who, Scheduler& scheduler, const ScheduleOptions& options);
// mu for a picture of so many tokens, by the numbers in the scheduler's config (Esser et al. 2024, arXiv 2403.03206,
// section 5.3.2): diffusers' calculate_shift.
double flow_shift(Scheduler& scheduler, int64_t tokens);
// A part of a step that `strength` leaves: Stable Diffusion's pipelines drop it, those of flow matching run the step.
enum class PartOfStep : uint8_t { Dropped, Run };
// The last `strength` of the schedule: a picture's noise is taken away from there on. ValueError where no step is left.
void start_at_strength(const char* who, Scheduler& scheduler, StepSchedule& schedule, double strength,
                       PartOfStep part = PartOfStep::Dropped);

// eta and generator, where the scheduler's step takes them.
StepOptions step_options(const Scheduler& scheduler, double eta, const Generators& generator);

// Latents as the denoiser takes them at a timestep of the scheduler: in its dtype where they are kept wide.
Tensor model_input(Denoiser& denoiser, Scheduler& scheduler, const Tensor& latents, double timestep,
                   const Guidance& guidance);

// The guided output of the denoiser for latents[B, C, ...], or [B, T, C, ...] of clips, at step i. told: the other
// arguments, where guidance is on with both halves. output_channels: of the output's second dimension, those that are
// looked at; 0: all.
Tensor predict_noise(Denoiser& denoiser, Scheduler& scheduler, const Tensor& latents, const StepSchedule& schedule,
                     size_t i, const DenoiserCall& told, const Guidance& guidance, int64_t output_channels = 0);

// What guidance makes of the denoiser's output, which has both halves where it is on.
Tensor guided(const Tensor& output, const Guidance& guidance, int64_t output_channels = 0);

// Of a distilled model: guidance_scale - 1 for each of the samples as [batch, dim] (Luo et al. 2023,
// arXiv 2310.04378). Undefined for dim 0.
Tensor guidance_scale_embedding(double guidance_scale, int64_t batch, int64_t dim, DType dtype, Device device);

}  // namespace sf::diffusion
