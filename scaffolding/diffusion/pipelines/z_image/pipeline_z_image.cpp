#include "scaffolding/diffusion/pipelines/z_image/pipeline_z_image.h"

#include "scaffolding/core/error.h"
#include "scaffolding/diffusion/pipelines/registry.h"

namespace sf::diffusion {

std::unique_ptr<Run> ZImagePipeline::prepare(const ZImageOptions& o) const {
  check_components();
  const Size s = size(o.height, o.width);
  auto run = prepare_run(o, s);
  const Shape shape = latent_shape(o, s);
  SF_CHECK(!o.latents || o.latents.shape() == shape, kName, ": latents must be ", shape, ", got ", o.latents.shape());
  run->latents = initial_latents(*run->scheduler, o.latents, o.generator, shape, kFloat32).to(kFloat32);
  return run;
}

SF_PIPELINE(ZImagePipeline)
    .family("z-image")
    .task(Task::TextToImage)
    .takes("transformer", "ZImageTransformer2DModel")
    .takes("text_encoder", "Qwen3Model")
    .optional("text_encoder, tokenizer")
    .call(
        "prompt, height, width, num_inference_steps, sigmas, guidance_scale, cfg_normalization, cfg_truncation, "
        "negative_prompt, num_images_per_prompt, generator, latents, prompt_embeds, negative_prompt_embeds, "
        "output_type, return_dict, joint_attention_kwargs, callback_on_step_end, callback_on_step_end_tensor_inputs, "
        "max_sequence_length, guidance_mode")
    .callbacks("latents, prompt_embeds")
    .doc("Text to pictures with Z-Image.");

}  // namespace sf::diffusion
