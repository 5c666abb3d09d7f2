#include "scaffolding/diffusion/pipelines/stable_diffusion_xl/pipeline_stable_diffusion_xl.h"

#include "scaffolding/diffusion/pipelines/registry.h"

namespace sf::diffusion {

std::unique_ptr<Run> StableDiffusionXLPipeline::prepare(const StableDiffusionXLOptions& o) const {
  check_xl(o);
  auto [height, width] = size(o.height, o.width);
  const int64_t batch = prompts(o) * o.num_images_per_prompt, scale = vae_scale_factor();
  auto run = std::make_unique<Run>();
  const StableDiffusionXLEmbeds embeds = prepare_run(*run, o);
  const Shape shape{batch, unet->config_int("in_channels", 4), height / scale, width / scale};
  run->latents = initial_latents(*run->scheduler, o.latents, o.generator, shape, embeds.prompt_embeds.dtype());
  tell_sizes(*run, o, embeds, height, width);
  return run;
}

SF_PIPELINE(StableDiffusionXLPipeline)
    .family("stable-diffusion-xl")
    .task(Task::TextToImage)
    .takes("unet", "UNet2DConditionModel")
    .optional("tokenizer, tokenizer_2, text_encoder, text_encoder_2, image_encoder, feature_extractor")
    .call(
        "prompt, prompt_2, height, width, num_inference_steps, timesteps, sigmas, denoising_end, guidance_scale, "
        "negative_prompt, negative_prompt_2, "
        "num_images_per_prompt, eta, generator, latents, prompt_embeds, negative_prompt_embeds, pooled_prompt_embeds, "
        "negative_pooled_prompt_embeds, "
        "ip_adapter_image, ip_adapter_image_embeds, output_type, return_dict, cross_attention_kwargs, "
        "guidance_rescale, original_size, "
        "crops_coords_top_left, target_size, negative_original_size, negative_crops_coords_top_left, "
        "negative_target_size, clip_skip, "
        "callback_on_step_end, callback_on_step_end_tensor_inputs, guidance_mode, prompt_syntax")
    .callbacks("latents, prompt_embeds, add_text_embeds, add_time_ids")
    .doc("Text to pictures with SDXL. A VAE in float16 whose config has force_upcast decodes in float32.");

}  // namespace sf::diffusion
