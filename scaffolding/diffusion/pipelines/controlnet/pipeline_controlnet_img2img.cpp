#include "scaffolding/diffusion/pipelines/controlnet/pipeline_controlnet_img2img.h"

#include "scaffolding/diffusion/pipelines/registry.h"

namespace sf::diffusion {

OptionFields ControlNetImg2ImgOptions::fields() { return Img2ImgOptions::fields() + control_fields("control_image"); }

std::unique_ptr<Run> StableDiffusionControlNetImg2ImgPipeline::prepare(const ControlNetImg2ImgOptions& o) const {
  check_call(o);
  check_cross_attention(o);
  check_image(o.image);
  controlnets.check(*this, o);
  auto run = std::make_unique<ControlledRun<StableDiffusionRun>>();
  prepare_run(*run, o, o.strength);
  if (o.latents) run->latents = o.latents.to(unet->device());  // with their noise, as diffusers takes them
  else begin_with_picture(*run, o, o.image);
  const int64_t scale = vae_scale_factor();
  run->control.begin(*run, *this, controlnets, o, run->latents.size(2) * scale, run->latents.size(3) * scale,
                     o.num_images_per_prompt, "control_image");
  return run;
}

SF_PIPELINE(StableDiffusionControlNetImg2ImgPipeline)
    .family("stable-diffusion-controlnet")
    .task(Task::ImageToImage)
    .takes("unet", "UNet2DConditionModel")
    .takes("controlnet", "ControlNetModel")
    .optional("safety_checker, feature_extractor, image_encoder")
    .call(
        "prompt, image, control_image, height, width, strength, num_inference_steps, guidance_scale, negative_prompt, "
        "num_images_per_prompt, eta, generator, latents, prompt_embeds, negative_prompt_embeds, ip_adapter_image, "
        "ip_adapter_image_embeds, output_type, return_dict, cross_attention_kwargs, controlnet_conditioning_scale, "
        "guess_mode, control_guidance_start, control_guidance_end, clip_skip, callback_on_step_end, "
        "callback_on_step_end_tensor_inputs, guidance_rescale, guidance_mode, prompt_syntax")
    .callbacks("latents, prompt_embeds, negative_prompt_embeds, control_image")
    .doc("A picture changed by a prompt, after the edges, depths or pose of another one.");

}  // namespace sf::diffusion
