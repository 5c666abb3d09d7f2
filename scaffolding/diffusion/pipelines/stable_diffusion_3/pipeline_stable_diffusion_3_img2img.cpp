#include "scaffolding/diffusion/pipelines/stable_diffusion_3/pipeline_stable_diffusion_3_img2img.h"

#include "scaffolding/core/error.h"
#include "scaffolding/diffusion/pipelines/registry.h"

namespace sf::diffusion {

OptionFields StableDiffusion3PictureOptions::fields() {
  return StableDiffusion3Options::fields() +
         OptionFields{
             {"image", &image, "the picture, a list of them, or latents", OptionRole::Picture},
             {"strength", &strength, "how far the result may be from the picture: the share of the steps that is run"},
         };
}

std::unique_ptr<Run> StableDiffusion3Img2ImgPipeline::prepare(const StableDiffusion3PictureOptions& o) const {
  check_sd3(o);
  check_image(o.image);
  const bool is_latent = !vae || o.image.size(1) == vae->config_int("latent_channels", 16);
  const int64_t pixels = is_latent ? vae_scale_factor() : 1, height = o.image.size(2) * pixels,
                width = o.image.size(3) * pixels, batch = prompts(o) * o.num_images_per_prompt;
  SF_CHECK(o.height.value_or(height) == height && o.width.value_or(width) == width, kName, ": image must be of ",
           o.height.value_or(height), " x ", o.width.value_or(width), ", got ", o.image.shape());
  check_patches(height, width);
  auto run = std::make_unique<Run>();
  prepare_run(*run, o, {height, width});
  const DType dtype = run->told.of(ArgumentRole::Text).dtype();
  start_at_strength(kName, *run->scheduler, run->schedule, o.strength, PartOfStep::Run);
  run->latents = o.latents;
  if (!run->latents) {
    const Tensor image = o.generator.size() > 1 ? fill_batch(kName, "images", o.image, batch) : o.image;
    const Tensor latents = fill_batch(kName, "images", encode_images(image, o.generator, dtype), batch);
    const Tensor noise = randn_tensor(latents.shape(), o.generator, transformer->device(), dtype);
    run->latents = run->scheduler->add_noise(latents, noise, run->schedule.timestep(0));
  }
  return run;
}

SF_PIPELINE(StableDiffusion3Img2ImgPipeline)
    .family("stable-diffusion-3")
    .task(Task::ImageToImage)
    .takes("transformer", "SD3Transformer2DModel")
    .optional(
        "tokenizer, tokenizer_2, tokenizer_3, text_encoder, text_encoder_2, text_encoder_3, image_encoder, "
        "feature_extractor")
    .call(
        "prompt, prompt_2, prompt_3, height, width, image, strength, num_inference_steps, sigmas, guidance_scale, "
        "negative_prompt, negative_prompt_2, negative_prompt_3, num_images_per_prompt, generator, latents, "
        "prompt_embeds, negative_prompt_embeds, pooled_prompt_embeds, negative_pooled_prompt_embeds, output_type, "
        "ip_adapter_image, ip_adapter_image_embeds, return_dict, joint_attention_kwargs, clip_skip, "
        "callback_on_step_end, callback_on_step_end_tensor_inputs, max_sequence_length, mu, guidance_mode")
    .callbacks("latents, prompt_embeds, pooled_prompt_embeds")
    .doc("A picture changed by a prompt with Stable Diffusion 3 and 3.5.");

}  // namespace sf::diffusion
