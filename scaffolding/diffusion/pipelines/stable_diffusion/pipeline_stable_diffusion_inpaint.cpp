#include "scaffolding/diffusion/pipelines/stable_diffusion/pipeline_stable_diffusion_inpaint.h"

#include "scaffolding/diffusion/pipelines/inpainting.h"
#include "scaffolding/diffusion/pipelines/registry.h"

namespace sf::diffusion {

OptionFields InpaintOptions::fields() {
  return GenerationOptions::fields() +
         OptionFields{
             {"image", &image, "the picture", OptionRole::Picture},
             {"mask_image", &mask, "white where the picture is made anew", OptionRole::Mask},
             {"masked_image_latents", &masked_image_latents, "instead of those of the picture without the part"},
             {"strength", &strength, "1 forgets what was under the mask"}};
}

std::unique_ptr<Run> StableDiffusionInpaintPipeline::prepare(const InpaintOptions& o) const {
  check_call(o);
  check_cross_attention(o);
  check_image(o.image);
  InpaintInputs in = inpaint_inputs(*this, o, prompts(o) * o.num_images_per_prompt);
  in.check();
  auto run = std::make_unique<InpaintRun<StableDiffusionRun>>();
  prepare_run(*run, o, o.strength);
  const DType dtype = run->prompt_embeds().dtype();
  in.encode = [&](const Tensor& pictures) { return encode_images(pictures, o.generator, dtype); };
  run->inpainting.begin(*run, in, dtype);
  run->inpainting.tell(*run);
  return run;
}

SF_PIPELINE(StableDiffusionInpaintPipeline)
    .family("stable-diffusion")
    .task(Task::Inpainting)
    .takes("unet", "UNet2DConditionModel")
    .optional("safety_checker, feature_extractor, image_encoder")
    .call(
        "prompt, image, mask_image, masked_image_latents, height, width, padding_mask_crop, strength, "
        "num_inference_steps, timesteps, sigmas, "
        "guidance_scale, negative_prompt, num_images_per_prompt, eta, generator, latents, prompt_embeds, "
        "negative_prompt_embeds, ip_adapter_image, "
        "ip_adapter_image_embeds, output_type, return_dict, cross_attention_kwargs, clip_skip, callback_on_step_end, "
        "callback_on_step_end_tensor_inputs, "
        "guidance_rescale, guidance_mode, prompt_syntax")
    .callbacks("latents, prompt_embeds, negative_prompt_embeds, mask, masked_image_latents")
    .doc("A part of a picture made anew, by UNets with 9 input channels, or with 4.");

}  // namespace sf::diffusion
