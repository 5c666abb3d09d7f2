#include "scaffolding/diffusion/pipelines/controlnet/pipeline_controlnet_sd_xl.h"

#include "scaffolding/diffusion/pipelines/registry.h"

namespace sf::diffusion {

OptionFields StableDiffusionXLControlNetOptions::fields() {
  return StableDiffusionXLOptions::fields() + control_fields("image");
}

std::unique_ptr<Run> StableDiffusionXLControlNetPipeline::prepare(const StableDiffusionXLControlNetOptions& o) const {
  check_xl(o);
  controlnets.check(*this, o);
  const Tensor& seen = o.control_image[0];
  const int64_t height = o.height.value_or(seen.size(2)), width = o.width.value_or(seen.size(3));
  const int64_t batch = prompts(o) * o.num_images_per_prompt, scale = vae_scale_factor();
  auto run = std::make_unique<ControlledRun<Run>>();
  const StableDiffusionXLEmbeds embeds = prepare_run(*run, o);
  const Shape shape{batch, unet->config_int("in_channels", 4), height / scale, width / scale};
  run->latents = initial_latents(*run->scheduler, o.latents, o.generator, shape, embeds.prompt_embeds.dtype());
  tell_sizes(*run, o, embeds, height, width);
  run->control.begin(*run, *this, controlnets, o, height, width, o.num_images_per_prompt, "image");
  return run;
}

SF_PIPELINE(StableDiffusionXLControlNetPipeline)
    .family("stable-diffusion-xl-controlnet")
    .task(Task::TextToImage)
    .takes("unet", "UNet2DConditionModel")
    .takes("controlnet", "ControlNetModel")
    .optional("tokenizer, tokenizer_2, text_encoder, text_encoder_2, image_encoder, feature_extractor")
    .call(
        "prompt, prompt_2, image, height, width, num_inference_steps, timesteps, sigmas, denoising_end, "
        "guidance_scale, negative_prompt, negative_prompt_2, num_images_per_prompt, eta, generator, latents, "
        "prompt_embeds, negative_prompt_embeds, pooled_prompt_embeds, negative_pooled_prompt_embeds, ip_adapter_image, "
        "ip_adapter_image_embeds, output_type, return_dict, cross_attention_kwargs, controlnet_conditioning_scale, "
        "guess_mode, control_guidance_start, control_guidance_end, original_size, crops_coords_top_left, target_size, "
        "negative_original_size, negative_crops_coords_top_left, negative_target_size, clip_skip, "
        "callback_on_step_end, callback_on_step_end_tensor_inputs, guidance_rescale, guidance_mode, prompt_syntax")
    .callbacks("latents, prompt_embeds, add_text_embeds, add_time_ids, image")
    .doc("Text to pictures with SDXL, after the edges, depths or pose of a picture.");

}  // namespace sf::diffusion
