#include "scaffolding/diffusion/pipelines/flux/pipeline_flux_img2img.h"

#include "scaffolding/core/error.h"
#include "scaffolding/diffusion/pipelines/registry.h"

namespace sf::diffusion {

OptionFields FluxImg2ImgOptions::fields() {
  return FluxOptions::fields() +
         OptionFields{
             {"image", &image, "the picture, or a list of them", OptionRole::Picture},
             {"strength", &strength, "how far the result may be from the picture: the share of the steps that is run"},
         };
}

std::unique_ptr<Run> FluxImg2ImgPipeline::prepare(const FluxImg2ImgOptions& given) const {
  FluxImg2ImgOptions o = given;
  if (!o.height && !o.width && o.image && o.image.ndim() == 4) {  // as large as the picture
    const int64_t scale = o.image.size(1) == 3 ? 1 : vae_scale_factor();
    o.height = o.image.size(2) * scale, o.width = o.image.size(3) * scale;
  }
  check_flux(o);
  auto run = std::make_unique<FluxRun>();
  prepare_run(*run, o);
  start_at_strength(kName, *run->scheduler, run->schedule, o.strength, PartOfStep::Run);
  run->latents = o.latents ? given_latents(*run, o) : noised_picture(*run, o, o.image);
  return run;
}

SF_PIPELINE(FluxImg2ImgPipeline)
    .family("flux")
    .task(Task::ImageToImage)
    .takes("transformer", "FluxTransformer2DModel")
    .takes("text_encoder_2", "T5EncoderModel")
    .optional("text_encoder, tokenizer, text_encoder_2, tokenizer_2, image_encoder, feature_extractor")
    .call(
        "prompt, prompt_2, negative_prompt, negative_prompt_2, true_cfg_scale, image, height, width, strength, "
        "num_inference_steps, sigmas, guidance_scale, num_images_per_prompt, generator, latents, prompt_embeds, "
        "pooled_prompt_embeds, ip_adapter_image, ip_adapter_image_embeds, negative_ip_adapter_image, "
        "negative_ip_adapter_image_embeds, negative_prompt_embeds, negative_pooled_prompt_embeds, output_type, "
        "return_dict, joint_attention_kwargs, callback_on_step_end, callback_on_step_end_tensor_inputs, "
        "max_sequence_length, guidance_mode")
    .callbacks("latents, prompt_embeds")
    .doc("A picture changed by a prompt with FLUX.1.");

}  // namespace sf::diffusion
