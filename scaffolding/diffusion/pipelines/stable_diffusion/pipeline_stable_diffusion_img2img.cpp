#include "scaffolding/diffusion/pipelines/stable_diffusion/pipeline_stable_diffusion_img2img.h"

#include "scaffolding/diffusion/pipelines/registry.h"

namespace sf::diffusion {

OptionFields Img2ImgOptions::fields() {
  return GenerationOptions::fields() +
         OptionFields{
             {"image", &image, "the picture, or a list of them", OptionRole::Picture},
             {"strength", &strength, "how far the result may be from the picture: the share of the steps that is run"}};
}

std::unique_ptr<Run> StableDiffusionImg2ImgPipeline::prepare(const Img2ImgOptions& o) const {
  check_call(o);
  check_cross_attention(o);
  check_image(o.image);
  auto run = std::make_unique<StableDiffusionRun>();
  prepare_run(*run, o, o.strength);
  begin_with_picture(*run, o, o.image);
  return run;
}

SF_PIPELINE(StableDiffusionImg2ImgPipeline)
    .family("stable-diffusion")
    .task(Task::ImageToImage)
    .takes("unet", "UNet2DConditionModel")
    .optional("safety_checker, feature_extractor, image_encoder")
    .call(
        "prompt, image, strength, num_inference_steps, timesteps, sigmas, guidance_scale, negative_prompt, "
        "num_images_per_prompt, eta, generator, "
        "prompt_embeds, negative_prompt_embeds, ip_adapter_image, ip_adapter_image_embeds, output_type, return_dict, "
        "cross_attention_kwargs, clip_skip, "
        "callback_on_step_end, callback_on_step_end_tensor_inputs, guidance_rescale, guidance_mode, prompt_syntax")
    .callbacks("latents, prompt_embeds, negative_prompt_embeds")
    .doc("A picture changed by a prompt.");

}  // namespace sf::diffusion
