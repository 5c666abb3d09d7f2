#include "scaffolding/diffusion/pipelines/stable_diffusion/pipeline_stable_diffusion_inpaint.h"

#include "scaffolding/core/error.h"
#include "scaffolding/diffusion/pipelines/registry.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion {

OptionFields InpaintOptions::fields() {
  return GenerationOptions::fields() +
         OptionFields{
             {"image", &image, "the picture", OptionRole::Picture},
             {"mask_image", &mask, "white where the picture is made anew", OptionRole::Mask},
             {"masked_image_latents", &masked_image_latents, "instead of those of the picture without the part"},
             {"strength", &strength, "1 forgets what was under the mask"}};
}

namespace {

struct InpaintRun final : StableDiffusionRun {
  bool sees_mask = false;             // the denoiser does, among its channels
  Tensor mask, masked_image_latents;  // [B, ..], under guidance [2 B, ..]
  Tensor image_latents, noise;        // [B, C, h, w], where the denoiser does not see the mask

  void prepare_step() override {
    if (sees_mask) told.of(ArgumentRole::Channels) = cat({mask, masked_image_latents}, 1);
  }
  void advance(const Tensor& model_output) override {
    Run::advance(model_output);
    if (sees_mask) return;
    const size_t next = at() + 1;
    Tensor kept = next < schedule.size() ? scheduler->add_noise(image_latents, noise, schedule.timestep_on_host(next))
                                         : image_latents;
    Tensor part = mask.narrow(0, 0, latents.size(0));
    latents = (1 - part) * kept + part * latents;
  }
  void keep_more(const Tensor& places) override {
    StableDiffusionRun::keep_more(places);
    const Tensor both = guidance.on() ? cat({places, places + mask.size(0) / 2}, 0) : places;
    for (Tensor* t : {&mask, &masked_image_latents}) *t = index_select(*t, 0, both.to(t->device()));
    for (Tensor* t : {&image_latents, &noise})
      if (*t) *t = index_select(*t, 0, places.to(t->device()));
  }
};

}  // namespace

std::unique_ptr<Run> StableDiffusionInpaintPipeline::prepare(const InpaintOptions& o) const {
  check_call(o);
  check_cross_attention(o);
  check_image(o.image);
  check_defined(kName, "mask_image", o.mask);
  SF_CHECK(o.mask.ndim() == 4 && o.mask.size(1) == 1 && is_floating(o.mask.dtype()), kName,
           ": mask_image must be [n, 1, height, width], got ", o.mask.shape());
  auto [height, width] = size(o.height, o.width);
  const int64_t batch = prompts(o) * o.num_images_per_prompt, channels = unet->config_int("in_channels", 4),
                scale = vae_scale_factor(), latent_channels = vae->config_int("latent_channels", 4);
  auto run = std::make_unique<InpaintRun>();
  run->sees_mask = channels == 2 * latent_channels + 1;
  SF_CHECK(run->sees_mask || channels == latent_channels, kName, ": the denoiser must have ", latent_channels, " or ",
           2 * latent_channels + 1, " input channels, got ", channels);
  const bool is_latent = o.image.size(1) == latent_channels;
  for (auto [what, t] : {std::pair{"image", &o.image}, {"mask_image", &o.mask}})
    SF_CHECK((is_latent && t == &o.image) || (t->size(2) == height && t->size(3) == width), kName, ": ", what,
             " must be of ", height, " x ", width, ", got ", t->shape());

  prepare_run(*run, o, o.strength);
  const DType dtype = run->prompt_embeds().dtype();
  const Device device = unet->device();
  Scheduler& steps = *run->scheduler;

  // The picture first, then the noise, then what is left of the picture: in this order each draws from the generator.
  Tensor image_latents;
  if (!run->sees_mask || (!o.latents && o.strength < 1))
    image_latents = fill_batch(kName, "images", encode_images(o.image, o.generator, dtype), batch);
  Tensor noise =
      o.latents ? o.latents.to(device)
                : randn_tensor({batch, latent_channels, height / scale, width / scale}, o.generator, device, dtype);
  run->latents = o.latents || o.strength == 1 ? noise * steps.init_noise_sigma()
                                              : steps.add_noise(image_latents, noise, run->schedule.timestep(0));
  Tensor mask = interpolate(o.mask.to(device), Shape{height / scale, width / scale}).to(dtype);
  mask = fill_batch(kName, "masks", mask, batch);
  Tensor masked = o.masked_image_latents;
  if (!masked && is_latent)
    masked =
        o.image * lt(interpolate(o.mask, Shape{o.image.size(2), o.image.size(3)}), wrapped(0.5)).to(o.image.dtype());
  if (!masked) masked = o.image * lt(o.mask, wrapped(0.5)).to(o.image.dtype());
  Tensor masked_image_latents = fill_batch(kName, "images", encode_images(masked, o.generator, dtype), batch);
  if (run->guidance.on())
    mask = cat({mask, mask}, 0), masked_image_latents = cat({masked_image_latents, masked_image_latents}, 0);

  run->mask = mask, run->masked_image_latents = masked_image_latents;
  run->tensors.insert({{"mask", &run->mask}, {"masked_image_latents", &run->masked_image_latents}});
  if (run->sees_mask) run->told.push_back({"", {}, ArgumentRole::Channels});
  else run->image_latents = image_latents, run->noise = noise;
  return run;
}

SF_PIPELINE(StableDiffusionInpaintPipeline)
    .family("stable-diffusion")
    .task(Task::Inpainting)
    .takes("unet", "UNet2DConditionModel")
    .optional("safety_checker, feature_extractor, image_encoder")
    .call(
        "prompt, image, mask_image, masked_image_latents, height, width, padding_mask_crop, strength, "
        "num_inference_steps, timesteps, sigmas, "
        "guidance_scale, negative_prompt, num_images_per_prompt, eta, generator, latents, prompt_embeds, "
        "negative_prompt_embeds, ip_adapter_image, "
        "ip_adapter_image_embeds, output_type, return_dict, cross_attention_kwargs, clip_skip, callback_on_step_end, "
        "callback_on_step_end_tensor_inputs, "
        "guidance_rescale, guidance_mode, prompt_syntax")
    .callbacks("latents, prompt_embeds, negative_prompt_embeds, mask, masked_image_latents")
    .doc("A part of a picture made anew, by UNets with 9 input channels, or with 4.");

}  // namespace sf::diffusion
