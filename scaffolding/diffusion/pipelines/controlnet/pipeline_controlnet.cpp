#include "scaffolding/diffusion/pipelines/controlnet/pipeline_controlnet.h"

#include "scaffolding/diffusion/pipelines/registry.h"

namespace sf::diffusion {

OptionFields ControlNetOptions::fields() { return GenerationOptions::fields() + control_fields("image"); }

std::unique_ptr<Run> StableDiffusionControlNetPipeline::prepare(const ControlNetOptions& o) const {
  check_call(o);
  check_cross_attention(o);
  controlnets.check(*this, o);
  const Tensor& seen = o.control_image[0];
  const int64_t height = o.height.value_or(seen.size(2)), width = o.width.value_or(seen.size(3));
  auto run = std::make_unique<ControlledRun<StableDiffusionRun>>();
  prepare_run(*run, o);
  const int64_t scale = vae_scale_factor();
  const Shape shape{prompts(o) * o.num_images_per_prompt, unet->config_int("in_channels", 4), height / scale,
                    width / scale};
  run->latents = initial_latents(*run->scheduler, o.latents, o.generator, shape, run->prompt_embeds().dtype());
  run->control.begin(*run, *this, controlnets, o, height, width, o.num_images_per_prompt, "image");
  return run;
}

SF_PIPELINE(StableDiffusionControlNetPipeline)
    .family("stable-diffusion-controlnet")
    .task(Task::TextToImage)
    .takes("unet", "UNet2DConditionModel")
    .takes("controlnet", "ControlNetModel")
    .optional("safety_checker, feature_extractor, image_encoder")
    .call(
        "prompt, image, height, width, num_inference_steps, timesteps, sigmas, guidance_scale, negative_prompt, "
        "num_images_per_prompt, eta, generator, latents, prompt_embeds, negative_prompt_embeds, ip_adapter_image, "
        "ip_adapter_image_embeds, output_type, return_dict, cross_attention_kwargs, controlnet_conditioning_scale, "
        "guess_mode, control_guidance_start, control_guidance_end, clip_skip, callback_on_step_end, "
        "callback_on_step_end_tensor_inputs, guidance_rescale, guidance_mode, prompt_syntax")
    .callbacks("latents, prompt_embeds, negative_prompt_embeds, image")
    .doc("Text to pictures with Stable Diffusion 1 and 2, after the edges, depths or pose of a picture.");

}  // namespace sf::diffusion
