#include "scaffolding/diffusion/pipelines/stable_diffusion_xl/pipeline_stable_diffusion_xl_inpaint.h"

#include "scaffolding/diffusion/pipelines/inpainting.h"
#include "scaffolding/diffusion/pipelines/registry.h"

namespace sf::diffusion {

OptionFields StableDiffusionXLInpaintOptions::fields() {
  return StableDiffusionXLPictureOptions::fields() +
         OptionFields{
             {"mask_image", &mask, "white where the picture is made anew", OptionRole::Mask},
             {"masked_image_latents", &masked_image_latents, "instead of those of the picture without the part"},
         };
}

std::unique_ptr<Run> StableDiffusionXLInpaintPipeline::prepare(const StableDiffusionXLInpaintOptions& o) const {
  check_picture(o);
  InpaintInputs in = inpaint_inputs(*this, o, prompts(o) * o.num_images_per_prompt);
  in.adds_noise = !o.denoising_start;
  in.check();
  auto run = std::make_unique<InpaintRun<Run>>();
  const StableDiffusionXLEmbeds embeds = prepare_run(*run, o);
  const DType dtype = embeds.prompt_embeds.dtype();
  start_late(*run, o);
  in.encode = [&](const Tensor& pictures) { return encode_wide(pictures, o.generator, dtype); };
  run->inpainting.begin(*run, in, dtype);
  tell_picture(*run, o, embeds);
  run->inpainting.tell(*run);
  return run;
}

SF_PIPELINE(StableDiffusionXLInpaintPipeline)
    .family("stable-diffusion-xl")
    .task(Task::Inpainting)
    .takes("unet", "UNet2DConditionModel")
    .optional("tokenizer, tokenizer_2, text_encoder, text_encoder_2, image_encoder, feature_extractor")
    .call(
        "prompt, prompt_2, image, mask_image, masked_image_latents, height, width, padding_mask_crop, strength, "
        "num_inference_steps, timesteps, sigmas, denoising_start, denoising_end, guidance_scale, negative_prompt, "
        "negative_prompt_2, num_images_per_prompt, eta, generator, latents, prompt_embeds, negative_prompt_embeds, "
        "pooled_prompt_embeds, negative_pooled_prompt_embeds, ip_adapter_image, ip_adapter_image_embeds, output_type, "
        "return_dict, cross_attention_kwargs, guidance_rescale, original_size, crops_coords_top_left, target_size, "
        "negative_original_size, negative_crops_coords_top_left, negative_target_size, aesthetic_score, "
        "negative_aesthetic_score, clip_skip, callback_on_step_end, callback_on_step_end_tensor_inputs, guidance_mode, "
        "prompt_syntax")
    .callbacks("latents, prompt_embeds, add_text_embeds, add_time_ids, mask, masked_image_latents")
    .doc("A part of a picture made anew with SDXL, by UNets with 9 input channels, or with 4.");

}  // namespace sf::diffusion
