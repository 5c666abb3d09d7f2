#include "scaffolding/diffusion/pipelines/stable_diffusion_xl/pipeline_stable_diffusion_xl_img2img.h"

#include <algorithm>

#include "scaffolding/core/error.h"
#include "scaffolding/diffusion/pipelines/registry.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion {

OptionFields StableDiffusionXLImg2ImgOptions::fields() {
  return StableDiffusionXLOptions::fields() +
         OptionFields{
             {"image", &image, "the picture, a list of them, or latents of a base model's run with denoising_end",
              OptionRole::Picture},
             {"strength", &strength, "how far the result may be from the picture: the share of the steps that is run"},
             {"denoising_start", &denoising_start, "the share of the process that was run already"},
             {"aesthetic_score", &aesthetic_score, "of models with requires_aesthetics_score"},
             {"negative_aesthetic_score", &negative_aesthetic_score, "of models with requires_aesthetics_score"},
         };
}

io::Fields StableDiffusionXLImg2ImgPipeline::fields() {
  return {{"requires_aesthetics_score", &requires_aesthetics_score},
          {"force_zeros_for_empty_prompt", &force_zeros_for_empty_prompt}};
}

void StableDiffusionXLImg2ImgPipeline::start_at(Scheduler& steps, StepSchedule& schedule,
                                                double denoising_start) const {
  auto cutoff = double(training_cutoff(denoising_start));
  int64_t n = std::count_if(schedule.values.begin(), schedule.values.end(), [&](double t) { return t < cutoff; });
  if (steps.order() == 2 && n % 2 == 0) ++n;  // not in the middle of a step of two calls
  n = std::min(n, int64_t(schedule.size()));
  int64_t start = int64_t(schedule.size()) - n;
  schedule.keep(start, int64_t(schedule.size()));
  schedule.num_inference_steps = n;
  steps.set_begin_index(start);
}

std::unique_ptr<Run> StableDiffusionXLImg2ImgPipeline::prepare(const StableDiffusionXLImg2ImgOptions& o) const {
  check_xl(o);
  check_image(o.image);
  auto inside = [](std::optional<double> share) { return share && *share > 0 && *share < 1; };
  SF_CHECK(!inside(o.denoising_start) || !inside(o.denoising_end) || *o.denoising_start < *o.denoising_end, kName,
           ": denoising_start must be below denoising_end, got ", *o.denoising_start, " and ", *o.denoising_end);
  const int64_t batch = prompts(o) * o.num_images_per_prompt;
  auto run = std::make_unique<Run>();
  const StableDiffusionXLEmbeds embeds = prepare_run(*run, o);
  const DType dtype = embeds.prompt_embeds.dtype();
  Scheduler& steps = *run->scheduler;
  if (inside(o.denoising_start)) start_at(steps, run->schedule, *o.denoising_start);
  else start_at_strength(kName, steps, run->schedule, o.strength);

  Tensor latents = o.latents;
  if (!latents) {
    Tensor image = o.generator.size() > 1 ? fill_batch(kName, "images", o.image, batch) : o.image;
    {
      UpcastVae upcast(*vae);
      latents = encode_images(image, o.generator, dtype);
    }
    latents = fill_batch(kName, "images", latents, batch);
    // A base model's latents come with the noise that is left in them.
    if (!o.denoising_start)
      latents = steps.add_noise(latents, randn_tensor(latents.shape(), o.generator, unet->device(), dtype),
                                run->schedule.timestep(0));
  }
  PixelPair pixels{latents.size(2) * vae_scale_factor(), latents.size(3) * vae_scale_factor()};
  PixelPair original = o.original_size.value_or(pixels), target = o.target_size.value_or(pixels),
            negative_original = o.negative_original_size.value_or(original),
            negative_target = o.negative_target_size.value_or(target);
  auto ids_of = [&](const PixelPair& size, const PixelPair& crop, const PixelPair& goal, double score) {
    std::vector<double> ids{double(size[0]), double(size[1]), double(crop[0]), double(crop[1])};
    if (requires_aesthetics_score) ids.push_back(score);
    else ids.insert(ids.end(), {double(goal[0]), double(goal[1])});
    return repeat(time_ids(ids, embeds.pooled_prompt_embeds), {batch, 1});
  };
  Tensor add_time_ids = ids_of(original, o.crops_coords_top_left, target, o.aesthetic_score);
  // Without an aesthetic score diffusers gives the positive crop to both.
  const PixelPair& crop = requires_aesthetics_score ? o.negative_crops_coords_top_left : o.crops_coords_top_left;
  if (run->guidance.on())
    add_time_ids = cat({ids_of(negative_original, crop, negative_target, o.negative_aesthetic_score), add_time_ids}, 0);
  run->latents = latents;
  tell(*run, o, embeds, add_time_ids);
  return run;
}

SF_PIPELINE(StableDiffusionXLImg2ImgPipeline)
    .family("stable-diffusion-xl")
    .task(Task::ImageToImage)
    .takes("unet", "UNet2DConditionModel")
    .optional("tokenizer, tokenizer_2, text_encoder, text_encoder_2, image_encoder, feature_extractor")
    .call(
        "prompt, prompt_2, image, strength, num_inference_steps, timesteps, sigmas, denoising_start, denoising_end, "
        "guidance_scale, negative_prompt, "
        "negative_prompt_2, num_images_per_prompt, eta, generator, latents, prompt_embeds, negative_prompt_embeds, "
        "pooled_prompt_embeds, "
        "negative_pooled_prompt_embeds, ip_adapter_image, ip_adapter_image_embeds, output_type, return_dict, "
        "cross_attention_kwargs, guidance_rescale, "
        "original_size, crops_coords_top_left, target_size, negative_original_size, negative_crops_coords_top_left, "
        "negative_target_size, aesthetic_score, "
        "negative_aesthetic_score, clip_skip, callback_on_step_end, callback_on_step_end_tensor_inputs, guidance_mode, "
        "prompt_syntax")
    .callbacks("latents, prompt_embeds, add_text_embeds, add_time_ids")
    .doc("A picture changed by a prompt with SDXL, and SDXL's refiner.");

}  // namespace sf::diffusion
