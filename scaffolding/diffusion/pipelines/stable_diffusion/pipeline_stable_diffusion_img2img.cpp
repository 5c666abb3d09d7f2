#include "scaffolding/diffusion/pipelines/stable_diffusion/pipeline_stable_diffusion_img2img.h"

#include "scaffolding/autograd/mode.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion {

PipelineOutput StableDiffusionImg2ImgPipeline::operator()(const Img2ImgOptions& o) const {
  autograd::NoGrad no_grad;
  check_call(o);
  check_image(o.image);
  int64_t batch = prompts(o) * o.num_images_per_prompt;
  Guidance guidance = this->guidance(o);

  auto [prompt_embeds, negative_prompt_embeds, truncated] = encode_prompt(o);
  DType dtype = prompt_embeds.dtype();
  if (guidance.on()) prompt_embeds = cat({negative_prompt_embeds, prompt_embeds}, 0);

  StepSchedule schedule = make_schedule(kName, *scheduler, {o.num_inference_steps, o.timesteps, o.sigmas, unet->device()});
  start_at_strength(kName, *scheduler, schedule, o.strength);

  Tensor image = o.generator.size() > 1 ? fill_batch(kName, "images", o.image, batch) : o.image;
  Tensor latents = fill_batch(kName, "images", encode_images(image, o.generator, dtype), batch);
  Tensor noise = randn_tensor(latents.shape(), o.generator, unet->device(), dtype);
  latents = scheduler->add_noise(latents, noise, schedule.timestep(0));
  StepOptions step = step_options(*scheduler, o.eta, o.generator);
  Tensor cond = timestep_cond(o, batch, dtype);

  DenoiserRun denoiser(*unet, *graphs, o.capture, o.cache_prompt);
  StepLoop loop(kName, *scheduler, schedule, o.callback_on_step_end, o.progress, o.stop);
  for (size_t i = 0; i < schedule.size() && !loop.interrupted(); ++i) {
    loop.begin_step();
    noise = predict_noise(denoiser, *scheduler, latents, schedule, i, {.prompt_embeds = prompt_embeds, .timestep_cond = cond}, guidance);
    latents = scheduler->step(noise, schedule.values[i], latents, step).prev_sample;
    loop.end_step(i, guidance, {{"latents", &latents}, {"prompt_embeds", &prompt_embeds}, {"negative_prompt_embeds", &negative_prompt_embeds}});
  }
  return {o.output_latents ? latents : decoded(latents), truncated};
}

}  // namespace sf::diffusion
