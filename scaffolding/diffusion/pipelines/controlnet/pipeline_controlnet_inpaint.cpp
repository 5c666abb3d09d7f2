#include "scaffolding/diffusion/pipelines/controlnet/pipeline_controlnet_inpaint.h"

#include "scaffolding/diffusion/pipelines/inpainting.h"
#include "scaffolding/diffusion/pipelines/registry.h"

namespace sf::diffusion {

OptionFields ControlNetInpaintOptions::fields() { return InpaintOptions::fields() + control_fields("control_image"); }

std::unique_ptr<Run> StableDiffusionControlNetInpaintPipeline::prepare(const ControlNetInpaintOptions& o) const {
  check_call(o);
  check_cross_attention(o);
  check_image(o.image);
  controlnets.check(*this, o);
  InpaintInputs in = inpaint_inputs(*this, o, prompts(o) * o.num_images_per_prompt);
  in.check();
  auto run = std::make_unique<InpaintRun<ControlledRun<StableDiffusionRun>>>();
  prepare_run(*run, o, o.strength);
  const DType dtype = run->prompt_embeds().dtype();
  in.encode = [&](const Tensor& pictures) { return encode_images(pictures, o.generator, dtype); };
  run->inpainting.begin(*run, in, dtype);
  run->inpainting.tell(*run);
  run->control.begin(*run, *this, controlnets, o, in.height, in.width, o.num_images_per_prompt, "control_image");
  return run;
}

SF_PIPELINE(StableDiffusionControlNetInpaintPipeline)
    .family("stable-diffusion-controlnet")
    .task(Task::Inpainting)
    .takes("unet", "UNet2DConditionModel")
    .takes("controlnet", "ControlNetModel")
    .optional("safety_checker, feature_extractor, image_encoder")
    .call(
        "prompt, image, mask_image, control_image, height, width, padding_mask_crop, strength, num_inference_steps, "
        "guidance_scale, negative_prompt, num_images_per_prompt, eta, generator, latents, prompt_embeds, "
        "negative_prompt_embeds, ip_adapter_image, ip_adapter_image_embeds, output_type, return_dict, "
        "cross_attention_kwargs, controlnet_conditioning_scale, guess_mode, control_guidance_start, "
        "control_guidance_end, clip_skip, callback_on_step_end, callback_on_step_end_tensor_inputs, "
        "masked_image_latents, guidance_rescale, guidance_mode, prompt_syntax")
    .callbacks("latents, prompt_embeds, negative_prompt_embeds, control_image, mask, masked_image_latents")
    .doc("A part of a picture made anew, after the edges, depths or pose of another one.");

}  // namespace sf::diffusion
