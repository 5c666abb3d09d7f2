#include "scaffolding/diffusion/pipelines/stable_diffusion_xl/from_picture.h"

#include <algorithm>

#include "scaffolding/core/error.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion {

namespace {

bool is_inside(std::optional<double> share) { return share && *share > 0 && *share < 1; }

}  // namespace

OptionFields StableDiffusionXLPictureOptions::fields() {
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

io::Fields StableDiffusionXLPictureBase::fields() {
  return {{"requires_aesthetics_score", &requires_aesthetics_score},
          {"force_zeros_for_empty_prompt", &force_zeros_for_empty_prompt}};
}

void StableDiffusionXLPictureBase::check_picture(const StableDiffusionXLPictureOptions& o) const {
  check_xl(o);
  check_image(o.image);
  SF_CHECK(!is_inside(o.denoising_start) || !is_inside(o.denoising_end) || *o.denoising_start < *o.denoising_end,
           name(), ": denoising_start must be below denoising_end, got ", *o.denoising_start, " and ",
           *o.denoising_end);
}

void StableDiffusionXLPictureBase::start_late(Run& run, const StableDiffusionXLPictureOptions& o) const {
  Scheduler& steps = *run.scheduler;
  StepSchedule& schedule = run.schedule;
  if (!is_inside(o.denoising_start)) return start_at_strength(name(), steps, schedule, o.strength);
  const auto cutoff = double(training_cutoff(*o.denoising_start));
  int64_t n = std::count_if(schedule.values.begin(), schedule.values.end(), [&](double t) { return t < cutoff; });
  if (steps.order() == 2 && n % 2 == 0) ++n;  // not in the middle of a step of two calls
  n = std::min(n, int64_t(schedule.size()));
  const int64_t begin = int64_t(schedule.size()) - n;
  schedule.keep(begin, int64_t(schedule.size()));
  schedule.num_inference_steps = n;
  steps.set_begin_index(begin);
}

void StableDiffusionXLPictureBase::begin_with_picture(Run& run, const StableDiffusionXLPictureOptions& o,
                                                      DType dtype) const {
  run.latents = o.latents;
  if (run.latents) return;
  const int64_t batch = prompts(o) * o.num_images_per_prompt;
  const Tensor image = o.generator.size() > 1 ? fill_batch(name(), "images", o.image, batch) : o.image;
  run.latents = fill_batch(name(), "images", encode_wide(image, o.generator, dtype), batch);
  // A base model's latents come with the noise that is left in them.
  if (!o.denoising_start)
    run.latents = run.scheduler->add_noise(
        run.latents, randn_tensor(run.latents.shape(), o.generator, unet->device(), dtype), run.schedule.timestep(0));
}

void StableDiffusionXLPictureBase::tell_picture(Run& run, const StableDiffusionXLPictureOptions& o,
                                                const StableDiffusionXLEmbeds& embeds) const {
  const int64_t scale = vae_scale_factor();
  PixelPair pixels{run.latents.size(2) * scale, run.latents.size(3) * scale};
  PixelPair original = o.original_size.value_or(pixels), target = o.target_size.value_or(pixels),
            negative_original = o.negative_original_size.value_or(original),
            negative_target = o.negative_target_size.value_or(target);
  auto ids_of = [&](const PixelPair& size, const PixelPair& crop, const PixelPair& goal, double score) {
    std::vector<double> ids{double(size[0]), double(size[1]), double(crop[0]), double(crop[1])};
    if (requires_aesthetics_score) ids.push_back(score);
    else ids.insert(ids.end(), {double(goal[0]), double(goal[1])});
    return repeat(time_ids(ids, embeds.pooled_prompt_embeds), {run.latents.size(0), 1});
  };
  Tensor add_time_ids = ids_of(original, o.crops_coords_top_left, target, o.aesthetic_score);
  // Without an aesthetic score diffusers gives the positive crop to both.
  const PixelPair& crop = requires_aesthetics_score ? o.negative_crops_coords_top_left : o.crops_coords_top_left;
  if (run.guidance.on())
    add_time_ids = cat({ids_of(negative_original, crop, negative_target, o.negative_aesthetic_score), add_time_ids}, 0);
  tell(run, o, embeds, add_time_ids);
}

Tensor StableDiffusionXLPictureBase::encode_wide(const Tensor& images, const Generators& generator, DType dtype) const {
  UpcastVae upcast(*vae);
  return encode_images(images, generator, dtype);
}

}  // namespace sf::diffusion
