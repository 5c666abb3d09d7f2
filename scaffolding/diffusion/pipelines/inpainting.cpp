#include "scaffolding/diffusion/pipelines/inpainting.h"

#include "scaffolding/core/error.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion {

void InpaintInputs::check() const {
  check_defined(who, "mask_image", mask);
  SF_CHECK(mask.ndim() == 4 && mask.size(1) == 1 && is_floating(mask.dtype()), who,
           ": mask_image must be [n, 1, height, width], got ", mask.shape());
  SF_CHECK(sees_mask() || channels == latent_channels, who, ": the denoiser must have ", latent_channels, " or ",
           2 * latent_channels + 1, " input channels, got ", channels);
  const bool is_latent = image.size(1) == latent_channels;
  for (auto [what, t] : {std::pair{"image", &image}, {"mask_image", &mask}})
    SF_CHECK((is_latent && t == &image) || (t->size(2) == height && t->size(3) == width), who, ": ", what,
             " must be of ", height, " x ", width, ", got ", t->shape());
  SF_CHECK(adds_noise || !latents, who, ": denoising_start goes on with the noise in image, and takes no latents");
}

void Inpainting::begin(Run& run, const InpaintInputs& in, DType dtype) {
  Scheduler& steps = *run.scheduler;
  const Shape small{in.height / in.scale, in.width / in.scale};
  sees_mask = in.sees_mask();
  const bool from_noise = in.adds_noise && (in.latents || in.strength == 1);
  Tensor picture;
  if (!sees_mask || !from_noise) picture = fill_batch(in.who, "images", in.encode(in.image), in.batch);
  const Tensor drawn =
      in.latents ? in.latents.to(in.device)
                 : randn_tensor({in.batch, in.latent_channels, small[0], small[1]}, in.generator, in.device, dtype);
  run.latents = from_noise      ? drawn * steps.init_noise_sigma()
                : in.adds_noise ? steps.add_noise(picture, drawn, run.schedule.timestep(0))
                                : picture;
  mask = fill_batch(in.who, "masks", interpolate(in.mask.to(in.device), small).to(dtype), in.batch);
  Tensor masked = in.masked_image_latents;
  if (!masked) {
    const Tensor cover = in.image.size(1) == in.latent_channels
                             ? interpolate(in.mask, Shape{in.image.size(2), in.image.size(3)})
                             : in.mask;
    masked = in.image * lt(cover, wrapped(0.5)).to(in.image.dtype());
  }
  masked_image_latents = fill_batch(in.who, "images", in.encode(masked), in.batch);
  if (run.guidance.on())
    mask = cat({mask, mask}, 0), masked_image_latents = cat({masked_image_latents, masked_image_latents}, 0);
  if (!sees_mask) image_latents = picture, noise = drawn;
}

void Inpainting::tell(Run& run) {
  run.tensors.insert({{"mask", &mask}, {"masked_image_latents", &masked_image_latents}});
  if (sees_mask) run.told.push_back({"", {}, ArgumentRole::Channels});
}

void Inpainting::before_step(Run& run) const {
  if (sees_mask) run.told.of(ArgumentRole::Channels) = cat({mask, masked_image_latents}, 1);
}

void Inpainting::after_step(Run& run) const {
  if (sees_mask) return;
  const size_t next = run.at() + 1;
  const Tensor kept = next < run.schedule.size()
                          ? run.scheduler->add_noise(image_latents, noise, run.schedule.timestep_on_host(next))
                          : image_latents;
  const Tensor part = mask.narrow(0, 0, run.latents.size(0));
  run.latents = (1 - part) * kept + part * run.latents;
}

void Inpainting::keep(const Run& run, const Tensor& places) {
  const Tensor both = run.guidance.on() ? cat({places, places + mask.size(0) / 2}, 0) : places;
  for (Tensor* t : {&mask, &masked_image_latents}) *t = index_select(*t, 0, both.to(t->device()));
  for (Tensor* t : {&image_latents, &noise})
    if (*t) *t = index_select(*t, 0, places.to(t->device()));
}

}  // namespace sf::diffusion
