#include "scaffolding/diffusion/pipelines/stable_diffusion/pipeline_stable_diffusion_inpaint.h"

#include "scaffolding/autograd/mode.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion {

PipelineOutput StableDiffusionInpaintPipeline::operator()(const InpaintOptions& o) const {
  autograd::NoGrad no_grad;
  check_call(o);
  check_image(o.image);
  check_defined(kName, "mask_image", o.mask);
  SF_CHECK(o.mask.ndim() == 4 && o.mask.size(1) == 1 && is_floating(o.mask.dtype()), kName, ": mask_image must be [n, 1, height, width], got ", o.mask.shape());
  auto [height, width] = size(o);
  int64_t batch = prompts(o) * o.num_images_per_prompt, channels = unet->config_int("in_channels", 4), latent_channels = vae->config_int("latent_channels", 4);
  Guidance guidance = this->guidance(o);
  bool sees_mask = channels == 2 * latent_channels + 1;
  SF_CHECK(sees_mask || channels == latent_channels, kName, ": the denoiser must have ", latent_channels, " or ", 2 * latent_channels + 1,
           " input channels, got ", channels);
  bool is_latent = o.image.size(1) == latent_channels;
  for (auto [what, t] : {std::pair{"image", &o.image}, {"mask_image", &o.mask}})
    SF_CHECK((is_latent && t == &o.image) || (t->size(2) == height && t->size(3) == width), kName, ": ", what, " must be of ", height, " x ", width, ", got ",
             t->shape());

  auto [prompt_embeds, negative_prompt_embeds, truncated] = encode_prompt(o);
  DType dtype = prompt_embeds.dtype();
  Device device = unet->device();
  if (guidance.on()) prompt_embeds = cat({negative_prompt_embeds, prompt_embeds}, 0);

  StepSchedule schedule = make_schedule(kName, *scheduler, {o.num_inference_steps, o.timesteps, o.sigmas, device});
  start_at_strength(kName, *scheduler, schedule, o.strength);

  // The picture first, then the noise, then what is left of the picture: in this order each draws from the generator.
  Tensor image_latents;
  if (!sees_mask || (!o.latents && o.strength < 1)) image_latents = fill_batch(kName, "images", encode_images(o.image, o.generator, dtype), batch);
  Tensor noise = o.latents ? o.latents.to(device)
                           : randn_tensor({batch, latent_channels, height / vae_scale_factor(), width / vae_scale_factor()}, o.generator, device, dtype);
  Tensor latents = o.latents || o.strength == 1 ? noise * scheduler->init_noise_sigma() : scheduler->add_noise(image_latents, noise, schedule.timestep(0));
  Tensor mask = interpolate(o.mask.to(device), Shape{height / vae_scale_factor(), width / vae_scale_factor()}).to(dtype);
  mask = fill_batch(kName, "masks", mask, batch);
  Tensor masked = o.masked_image_latents;
  if (!masked && is_latent) masked = o.image * lt(interpolate(o.mask, Shape{o.image.size(2), o.image.size(3)}), wrapped(0.5)).to(o.image.dtype());
  if (!masked) masked = o.image * lt(o.mask, wrapped(0.5)).to(o.image.dtype());
  Tensor masked_image_latents = fill_batch(kName, "images", encode_images(masked, o.generator, dtype), batch);
  if (guidance.on()) mask = cat({mask, mask}, 0), masked_image_latents = cat({masked_image_latents, masked_image_latents}, 0);
  StepOptions step = step_options(*scheduler, o.eta, o.generator);
  Tensor cond = timestep_cond(o, batch, dtype);

  DenoiserRun denoiser(*unet, *graphs, o.capture, o.cache_prompt);
  StepLoop loop(kName, *scheduler, schedule, o.callback_on_step_end, o.progress, o.stop);
  for (size_t i = 0; i < schedule.size() && !loop.interrupted(); ++i) {
    loop.begin_step();
    Conditioning conditioning{.prompt_embeds = prompt_embeds, .timestep_cond = cond};
    if (sees_mask) conditioning.channels = cat({mask, masked_image_latents}, 1);
    Tensor predicted = predict_noise(denoiser, *scheduler, latents, schedule, i, conditioning, guidance);
    latents = scheduler->step(predicted, schedule.values[i], latents, step).prev_sample;
    if (!sees_mask) {
      Tensor kept = i + 1 < schedule.size() ? scheduler->add_noise(image_latents, noise, schedule.timestep_on_host(i + 1)) : image_latents;
      Tensor part = mask.narrow(0, 0, batch);
      latents = (1 - part) * kept + part * latents;
    }
    loop.end_step(i, guidance,
                  {{"latents", &latents},
                   {"prompt_embeds", &prompt_embeds},
                   {"negative_prompt_embeds", &negative_prompt_embeds},
                   {"mask", &mask},
                   {"masked_image_latents", &masked_image_latents}});
  }
  return {o.output_latents ? latents : decoded(latents), truncated};
}

}  // namespace sf::diffusion
