#include "scaffolding/diffusion/pipelines/stable_diffusion_3/pipeline_stable_diffusion_3_inpaint.h"

#include "scaffolding/diffusion/pipelines/inpainting.h"
#include "scaffolding/diffusion/pipelines/registry.h"

namespace sf::diffusion {

OptionFields StableDiffusion3InpaintOptions::fields() {
  return StableDiffusion3PictureOptions::fields() +
         OptionFields{
             {"mask_image", &mask, "white where the picture is made anew", OptionRole::Mask},
             {"masked_image_latents", &masked_image_latents, "instead of those of the picture without the part"},
         };
}

std::unique_ptr<Run> StableDiffusion3InpaintPipeline::prepare(const StableDiffusion3InpaintOptions& o) const {
  check_sd3(o);
  check_image(o.image);
  InpaintInputs in = inpaint_inputs(*this, o, prompts(o) * o.num_images_per_prompt);
  in.check();
  check_patches(in.height, in.width);
  auto run = std::make_unique<InpaintRun<Run>>();
  prepare_run(*run, o, {in.height, in.width});
  const DType dtype = run->told.of(ArgumentRole::Text).dtype();
  start_at_strength(kName, *run->scheduler, run->schedule, o.strength, PartOfStep::Run);
  in.encode = [&](const Tensor& pictures) { return encode_images(pictures, o.generator, dtype); };
  run->inpainting.begin(*run, in, dtype);
  run->inpainting.tell(*run);
  return run;
}

SF_PIPELINE(StableDiffusion3InpaintPipeline)
    .family("stable-diffusion-3")
    .task(Task::Inpainting)
    .takes("transformer", "SD3Transformer2DModel")
    .optional(
        "tokenizer, tokenizer_2, tokenizer_3, text_encoder, text_encoder_2, text_encoder_3, image_encoder, "
        "feature_extractor")
    .call(
        "prompt, prompt_2, prompt_3, image, mask_image, masked_image_latents, height, width, padding_mask_crop, "
        "strength, num_inference_steps, sigmas, guidance_scale, negative_prompt, negative_prompt_2, "
        "negative_prompt_3, num_images_per_prompt, generator, latents, prompt_embeds, negative_prompt_embeds, "
        "pooled_prompt_embeds, negative_pooled_prompt_embeds, ip_adapter_image, ip_adapter_image_embeds, output_type, "
        "return_dict, joint_attention_kwargs, clip_skip, callback_on_step_end, callback_on_step_end_tensor_inputs, "
        "max_sequence_length, mu, guidance_mode")
    .callbacks("latents, prompt_embeds, pooled_prompt_embeds, mask, masked_image_latents")
    .doc(
        "A part of a picture made anew with Stable Diffusion 3 and 3.5, by transformers with 33 input channels, or "
        "with "
        "16.");

}  // namespace sf::diffusion
