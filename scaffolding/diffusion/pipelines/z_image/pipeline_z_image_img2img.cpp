#include "scaffolding/diffusion/pipelines/z_image/pipeline_z_image_img2img.h"

#include "scaffolding/core/error.h"
#include "scaffolding/diffusion/pipelines/registry.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion {

OptionFields ZImageImg2ImgOptions::fields() {
  return ZImageOptions::fields() +
         OptionFields{
             {"image", &image, "the picture, or a list of them", OptionRole::Picture},
             {"strength", &strength, "how far the result may be from the picture: the share of the steps that is run"},
         };
}

std::unique_ptr<Run> ZImageImg2ImgPipeline::prepare(const ZImageImg2ImgOptions& o) const {
  check_components();
  check_image(o.image);
  const int64_t scale = o.image.size(1) == transformer->config_int("in_channels", 16) ? vae_scale_factor() : 1;
  const Size picture{o.image.size(2) * scale, o.image.size(3) * scale},
      s{o.height.value_or(picture.height), o.width.value_or(picture.width)};
  SF_CHECK(s.height == picture.height && s.width == picture.width, kName, ": height and width must be the picture's, ",
           picture.height, " and ", picture.width, ", got ", s.height, " and ", s.width);
  auto run = prepare_run(o, s);
  start_at_strength(kName, *run->scheduler, run->schedule, o.strength, PartOfStep::Run);
  const Shape shape = latent_shape(o, s);
  if (o.latents) {
    SF_CHECK(o.latents.shape() == shape, kName, ": latents must be ", shape, ", got ", o.latents.shape());
    run->latents = o.latents.to(transformer->device()).to(kFloat32);
    return run;
  }
  const DType dtype = run->prompt_embeds().dtype();
  // One picture for several samples is drawn once, also where each sample has a generator.
  const Tensor latents = fill_batch(kName, "images", encode_images(o.image, o.generator, dtype), shape[0]);
  SF_CHECK(latents.shape() == shape, kName, ": needs as many images as pictures at most, ", shape[0], ", got ",
           latents.size(0));
  const Tensor noise = randn_tensor(shape, o.generator, transformer->device(), dtype);
  run->latents = run->scheduler->add_noise(latents, noise, run->schedule.timestep(0)).to(kFloat32);
  return run;
}

SF_PIPELINE(ZImageImg2ImgPipeline)
    .family("z-image")
    .task(Task::ImageToImage)
    .takes("transformer", "ZImageTransformer2DModel")
    .takes("text_encoder", "Qwen3Model")
    .optional("text_encoder, tokenizer")
    .call(
        "prompt, image, strength, height, width, num_inference_steps, sigmas, guidance_scale, cfg_normalization, "
        "cfg_truncation, negative_prompt, num_images_per_prompt, generator, latents, prompt_embeds, "
        "negative_prompt_embeds, output_type, return_dict, joint_attention_kwargs, callback_on_step_end, "
        "callback_on_step_end_tensor_inputs, max_sequence_length, guidance_mode")
    .callbacks("latents, prompt_embeds")
    .doc("A picture changed by a prompt with Z-Image.");

}  // namespace sf::diffusion
