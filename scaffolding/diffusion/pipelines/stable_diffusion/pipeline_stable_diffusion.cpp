#include "scaffolding/diffusion/pipelines/stable_diffusion/pipeline_stable_diffusion.h"

#include "scaffolding/autograd/mode.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion {

PipelineOutput StableDiffusionPipeline::operator()(const GenerationOptions& o) const {
  autograd::NoGrad no_grad;
  check_call(o);
  auto [height, width] = size(o);
  int64_t batch = prompts(o) * o.num_images_per_prompt;
  Guidance guidance = this->guidance(o);

  auto [prompt_embeds, negative_prompt_embeds, truncated] = encode_prompt(o);
  DType dtype = prompt_embeds.dtype();
  if (guidance.on()) prompt_embeds = cat({negative_prompt_embeds, prompt_embeds}, 0);

  StepSchedule schedule = make_schedule(kName, *scheduler, {o.num_inference_steps, o.timesteps, o.sigmas, unet->device()});
  Tensor latents = initial_latents(o, batch, unet->config_int("in_channels", 4), height, width, dtype);
  StepOptions step = step_options(*scheduler, o.eta, o.generator);
  Tensor cond = timestep_cond(o, batch, dtype);

  DenoiserRun denoiser(*unet, *graphs, o.capture, o.cache_prompt);
  StepLoop loop(kName, *scheduler, schedule, o.callback_on_step_end, o.progress, o.stop);
  for (size_t i = 0; i < schedule.size() && !loop.interrupted(); ++i) {
    loop.begin_step();
    Tensor noise = predict_noise(denoiser, *scheduler, latents, schedule, i, {.prompt_embeds = prompt_embeds, .timestep_cond = cond}, guidance);
    latents = scheduler->step(noise, schedule.values[i], latents, step).prev_sample;
    loop.end_step(i, guidance, {{"latents", &latents}, {"prompt_embeds", &prompt_embeds}, {"negative_prompt_embeds", &negative_prompt_embeds}});
  }
  return {o.output_latents ? latents : decoded(latents), truncated};
}

}  // namespace sf::diffusion
