#include "scaffolding/diffusion/pipelines/stable_diffusion_xl/pipeline_stable_diffusion_xl.h"

#include "scaffolding/autograd/mode.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion {

PipelineOutput StableDiffusionXLPipeline::operator()(const StableDiffusionXLOptions& o) const {
  autograd::NoGrad no_grad;
  check_call(o);
  check_xl(o);
  auto [height, width] = size(o);
  int64_t batch = prompts(o) * o.num_images_per_prompt;
  Guidance guidance = this->guidance(o);

  StableDiffusionXLEmbeds embeds = encode_prompt(o);
  DType dtype = embeds.prompt_embeds.dtype();
  StepSchedule schedule = make_schedule(kName, *scheduler, {o.num_inference_steps, o.timesteps, o.sigmas, unet->device()});
  Tensor latents = initial_latents(o, batch, unet->config_int("in_channels", 4), height, width, dtype);
  StepOptions step = step_options(*scheduler, o.eta, o.generator);

  auto ids_of = [&](const PixelPair& original, const PixelPair& crop, const PixelPair& target) {
    return time_ids({double(original[0]), double(original[1]), double(crop[0]), double(crop[1]), double(target[0]), double(target[1])},
                    embeds.pooled_prompt_embeds);
  };
  PixelPair pixels{height, width};
  Tensor add_time_ids = ids_of(o.original_size.value_or(pixels), o.crops_coords_top_left, o.target_size.value_or(pixels)), negative_ids = add_time_ids;
  if (o.negative_original_size && o.negative_target_size)
    negative_ids = ids_of(*o.negative_original_size, o.negative_crops_coords_top_left, *o.negative_target_size);
  Tensor prompt_embeds = embeds.prompt_embeds, add_text_embeds = embeds.pooled_prompt_embeds;
  if (guidance.on()) {
    prompt_embeds = cat({embeds.negative_prompt_embeds, prompt_embeds}, 0);
    add_text_embeds = cat({embeds.negative_pooled_prompt_embeds, add_text_embeds}, 0);
    add_time_ids = cat({negative_ids, add_time_ids}, 0);
  }
  // Repeated as diffusers does: with negative sizes of their own, negative and positive rows alternate.
  add_time_ids = repeat(add_time_ids, {batch, 1});

  scheduler->set_begin_index(0);
  end_at(schedule, o.denoising_end);
  Tensor cond = timestep_cond(o, batch, dtype);
  latents = run_steps(o, schedule, latents, {prompt_embeds, cond, add_text_embeds, add_time_ids, {}}, guidance, step);
  return {o.output_latents ? latents : decoded_upcast(latents), embeds.truncated};
}

}  // namespace sf::diffusion
