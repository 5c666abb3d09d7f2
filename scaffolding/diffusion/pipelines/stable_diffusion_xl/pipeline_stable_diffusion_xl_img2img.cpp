#include "scaffolding/diffusion/pipelines/stable_diffusion_xl/pipeline_stable_diffusion_xl_img2img.h"

#include "scaffolding/diffusion/pipelines/registry.h"

namespace sf::diffusion {

std::unique_ptr<Run> StableDiffusionXLImg2ImgPipeline::prepare(const StableDiffusionXLImg2ImgOptions& o) const {
  check_picture(o);
  auto run = std::make_unique<Run>();
  const StableDiffusionXLEmbeds embeds = prepare_run(*run, o);
  start_late(*run, o);
  begin_with_picture(*run, o, embeds.prompt_embeds.dtype());
  tell_picture(*run, o, embeds);
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
