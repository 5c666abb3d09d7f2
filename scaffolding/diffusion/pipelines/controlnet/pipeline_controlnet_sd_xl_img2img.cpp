#include "scaffolding/diffusion/pipelines/controlnet/pipeline_controlnet_sd_xl_img2img.h"

#include "scaffolding/diffusion/pipelines/registry.h"

namespace sf::diffusion {

OptionFields StableDiffusionXLControlNetImg2ImgOptions::fields() {
  return StableDiffusionXLPictureOptions::fields() + control_fields("control_image");
}

std::unique_ptr<Run> StableDiffusionXLControlNetImg2ImgPipeline::prepare(
    const StableDiffusionXLControlNetImg2ImgOptions& o) const {
  check_picture(o);
  controlnets.check(*this, o);
  auto run = std::make_unique<ControlledRun<Run>>();
  const StableDiffusionXLEmbeds embeds = prepare_run(*run, o);
  start_late(*run, o);
  begin_with_picture(*run, o, embeds.prompt_embeds.dtype());
  tell_picture(*run, o, embeds);
  const int64_t scale = vae_scale_factor();
  run->control.begin(*run, *this, controlnets, o, run->latents.size(2) * scale, run->latents.size(3) * scale,
                     o.num_images_per_prompt, "control_image");
  return run;
}

SF_PIPELINE(StableDiffusionXLControlNetImg2ImgPipeline)
    .family("stable-diffusion-xl-controlnet")
    .task(Task::ImageToImage)
    .takes("unet", "UNet2DConditionModel")
    .takes("controlnet", "ControlNetModel")
    .optional("tokenizer, tokenizer_2, text_encoder, text_encoder_2, image_encoder, feature_extractor")
    .call(
        "prompt, prompt_2, image, control_image, height, width, strength, num_inference_steps, guidance_scale, "
        "negative_prompt, negative_prompt_2, num_images_per_prompt, eta, generator, latents, prompt_embeds, "
        "negative_prompt_embeds, pooled_prompt_embeds, negative_pooled_prompt_embeds, ip_adapter_image, "
        "ip_adapter_image_embeds, output_type, return_dict, cross_attention_kwargs, controlnet_conditioning_scale, "
        "guess_mode, control_guidance_start, control_guidance_end, original_size, crops_coords_top_left, target_size, "
        "negative_original_size, negative_crops_coords_top_left, negative_target_size, aesthetic_score, "
        "negative_aesthetic_score, clip_skip, callback_on_step_end, callback_on_step_end_tensor_inputs, "
        "guidance_rescale, guidance_mode, prompt_syntax")
    .callbacks("latents, prompt_embeds, add_text_embeds, add_time_ids, control_image")
    .doc("A picture changed by a prompt with SDXL, after the edges, depths or pose of another one.");

}  // namespace sf::diffusion
