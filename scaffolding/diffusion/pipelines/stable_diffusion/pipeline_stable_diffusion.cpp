#include "scaffolding/diffusion/pipelines/stable_diffusion/pipeline_stable_diffusion.h"

#include "scaffolding/diffusion/pipelines/registry.h"

namespace sf::diffusion {

std::unique_ptr<Run> StableDiffusionPipeline::prepare(const GenerationOptions& o) const {
  check_call(o);
  check_cross_attention(o);
  auto [height, width] = size(o.height, o.width);
  auto run = std::make_unique<StableDiffusionRun>();
  prepare_run(*run, o);
  const int64_t scale = vae_scale_factor();
  const Shape shape{prompts(o) * o.num_images_per_prompt, unet->config_int("in_channels", 4), height / scale,
                    width / scale};
  run->latents = initial_latents(*run->scheduler, o.latents, o.generator, shape, run->prompt_embeds().dtype());
  return run;
}

SF_PIPELINE(StableDiffusionPipeline)
    .family("stable-diffusion")
    .task(Task::TextToImage)
    .takes("unet", "UNet2DConditionModel")
    .optional("safety_checker, feature_extractor, image_encoder")
    .call(
        "prompt, height, width, num_inference_steps, timesteps, sigmas, guidance_scale, negative_prompt, "
        "num_images_per_prompt, eta, generator, latents, "
        "prompt_embeds, negative_prompt_embeds, ip_adapter_image, ip_adapter_image_embeds, output_type, return_dict, "
        "cross_attention_kwargs, "
        "guidance_rescale, clip_skip, callback_on_step_end, callback_on_step_end_tensor_inputs, guidance_mode, "
        "prompt_syntax")
    .callbacks("latents, prompt_embeds, negative_prompt_embeds")
    .doc("Text to pictures with Stable Diffusion 1 and 2.");

}  // namespace sf::diffusion
