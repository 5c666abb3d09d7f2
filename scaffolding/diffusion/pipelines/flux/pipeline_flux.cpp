#include "scaffolding/diffusion/pipelines/flux/pipeline_flux.h"

#include "scaffolding/diffusion/pipelines/registry.h"

namespace sf::diffusion {

std::unique_ptr<Run> FluxPipeline::prepare(const FluxOptions& o) const {
  check_flux(o);
  auto run = std::make_unique<FluxRun>();
  prepare_run(*run, o);
  run->latents = o.latents ? given_latents(*run, o)
                           : packed_latents(randn_tensor(latent_shape(*run, o), o.generator, transformer->device(),
                                                         run->prompt_embeds().dtype()));
  return run;
}

SF_PIPELINE(FluxPipeline)
    .family("flux")
    .task(Task::TextToImage)
    .takes("transformer", "FluxTransformer2DModel")
    .takes("text_encoder_2", "T5EncoderModel")
    .optional("text_encoder, tokenizer, text_encoder_2, tokenizer_2, image_encoder, feature_extractor")
    .call(
        "prompt, prompt_2, negative_prompt, negative_prompt_2, true_cfg_scale, height, width, num_inference_steps, "
        "sigmas, guidance_scale, num_images_per_prompt, generator, latents, prompt_embeds, pooled_prompt_embeds, "
        "ip_adapter_image, ip_adapter_image_embeds, negative_ip_adapter_image, negative_ip_adapter_image_embeds, "
        "negative_prompt_embeds, negative_pooled_prompt_embeds, output_type, return_dict, joint_attention_kwargs, "
        "callback_on_step_end, callback_on_step_end_tensor_inputs, max_sequence_length, guidance_mode")
    .callbacks("latents, prompt_embeds")
    .doc("Text to pictures with FLUX.1 dev and schnell.");

}  // namespace sf::diffusion
