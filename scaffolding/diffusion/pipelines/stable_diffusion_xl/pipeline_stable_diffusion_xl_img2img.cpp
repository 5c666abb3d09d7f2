#include "scaffolding/diffusion/pipelines/stable_diffusion_xl/pipeline_stable_diffusion_xl_img2img.h"

#include <algorithm>

#include "scaffolding/autograd/mode.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion {

void StableDiffusionXLImg2ImgPipeline::start_at(StepSchedule& schedule, double denoising_start) const {
  auto cutoff = double(training_cutoff(denoising_start));
  int64_t n = std::count_if(schedule.values.begin(), schedule.values.end(), [&](double t) { return t < cutoff; });
  if (scheduler->order() == 2 && n % 2 == 0) ++n;  // not in the middle of a step of two calls
  n = std::min(n, int64_t(schedule.size()));
  int64_t start = int64_t(schedule.size()) - n;
  schedule.keep(start, int64_t(schedule.size()));
  schedule.num_inference_steps = n;
  scheduler->set_begin_index(start);
}

PipelineOutput StableDiffusionXLImg2ImgPipeline::operator()(const StableDiffusionXLImg2ImgOptions& o) const {
  autograd::NoGrad no_grad;
  check_call(o);
  check_xl(o);
  check_image(o.image);
  auto inside = [](std::optional<double> share) { return share && *share > 0 && *share < 1; };
  SF_CHECK(!inside(o.denoising_start) || !inside(o.denoising_end) || *o.denoising_start < *o.denoising_end, kName,
           ": denoising_start must be below denoising_end, got ", *o.denoising_start, " and ", *o.denoising_end);
  int64_t batch = prompts(o) * o.num_images_per_prompt;
  Guidance guidance = this->guidance(o);

  StableDiffusionXLEmbeds embeds = encode_prompt(o);
  DType dtype = embeds.prompt_embeds.dtype();
  StepSchedule schedule = make_schedule(kName, *scheduler, {o.num_inference_steps, o.timesteps, o.sigmas, unet->device()});
  if (inside(o.denoising_start)) start_at(schedule, *o.denoising_start);
  else start_at_strength(kName, *scheduler, schedule, o.strength);

  Tensor latents = o.latents;
  if (!latents) {
    Tensor image = o.generator.size() > 1 ? fill_batch(kName, "images", o.image, batch) : o.image;
    {
      UpcastVae upcast(*vae, vae->dtype() == kFloat16 && vae->config_bool("force_upcast", true));
      latents = encode_images(image, o.generator, dtype);
    }
    latents = fill_batch(kName, "images", latents, batch);
    // A base model's latents come with the noise that is left in them.
    if (!o.denoising_start) latents = scheduler->add_noise(latents, randn_tensor(latents.shape(), o.generator, unet->device(), dtype), schedule.timestep(0));
  }
  StepOptions step = step_options(*scheduler, o.eta, o.generator);

  PixelPair pixels{latents.size(2) * vae_scale_factor(), latents.size(3) * vae_scale_factor()};
  PixelPair original = o.original_size.value_or(pixels), target = o.target_size.value_or(pixels),
            negative_original = o.negative_original_size.value_or(original), negative_target = o.negative_target_size.value_or(target);
  auto ids_of = [&](const PixelPair& size, const PixelPair& crop, const PixelPair& goal, double score) {
    std::vector<double> ids{double(size[0]), double(size[1]), double(crop[0]), double(crop[1])};
    if (requires_aesthetics_score) ids.push_back(score);
    else ids.insert(ids.end(), {double(goal[0]), double(goal[1])});
    return repeat(time_ids(ids, embeds.pooled_prompt_embeds), {batch, 1});
  };
  Tensor prompt_embeds = embeds.prompt_embeds, add_text_embeds = embeds.pooled_prompt_embeds;
  Tensor add_time_ids = ids_of(original, o.crops_coords_top_left, target, o.aesthetic_score);
  if (guidance.on()) {
    // Without an aesthetic score diffusers gives the positive crop to both.
    const PixelPair& crop = requires_aesthetics_score ? o.negative_crops_coords_top_left : o.crops_coords_top_left;
    add_time_ids = cat({ids_of(negative_original, crop, negative_target, o.negative_aesthetic_score), add_time_ids}, 0);
    prompt_embeds = cat({embeds.negative_prompt_embeds, prompt_embeds}, 0);
    add_text_embeds = cat({embeds.negative_pooled_prompt_embeds, add_text_embeds}, 0);
  }
  end_at(schedule, o.denoising_end);
  Tensor cond = timestep_cond(o, batch, dtype);
  latents = run_steps(o, schedule, latents, {prompt_embeds, cond, add_text_embeds, add_time_ids, {}}, guidance, step);
  return {o.output_latents ? latents : decoded_upcast(latents), embeds.truncated};
}

}  // namespace sf::diffusion
