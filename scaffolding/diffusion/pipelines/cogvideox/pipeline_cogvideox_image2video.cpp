#include "scaffolding/diffusion/pipelines/cogvideox/pipeline_cogvideox_image2video.h"

#include "scaffolding/diffusion/pipelines/registry.h"

namespace sf::diffusion {

OptionFields CogVideoXImageToVideoOptions::fields() {
  return OptionFields{
             {"image", &image, "the picture that the clip begins with, or a list of them", OptionRole::Picture}} +
         CogVideoXOptions::fields();
}

std::unique_ptr<Run> CogVideoXImageToVideoPipeline::prepare(const CogVideoXImageToVideoOptions& o) const {
  auto run = prepare_run(o);
  begin_with(*run, o, o.image);
  return run;
}

SF_PIPELINE(CogVideoXImageToVideoPipeline)
    .family("cogvideox")
    .task(Task::ImageToVideo)
    .takes("text_encoder", "T5EncoderModel")
    .call(
        "image, prompt, negative_prompt, height, width, num_frames, num_inference_steps, timesteps, guidance_scale, "
        "use_dynamic_cfg, num_videos_per_prompt, eta, generator, latents, prompt_embeds, negative_prompt_embeds, "
        "output_type, return_dict, attention_kwargs, callback_on_step_end, callback_on_step_end_tensor_inputs, "
        "max_sequence_length, guidance_mode")
    .callbacks("latents, prompt_embeds, negative_prompt_embeds")
    .doc("Clips that begin with a picture, with CogVideoX.");

}  // namespace sf::diffusion
