#include "scaffolding/diffusion/pipelines/tora/pipeline_tora_image2video.h"

#include "scaffolding/diffusion/pipelines/registry.h"

namespace sf::diffusion {

OptionFields ToraImageToVideoOptions::fields() {
  return OptionFields{
             {"image", &image, "the picture that the clip begins with, or a list of them", OptionRole::Picture}} +
         steering.fields() + CogVideoXOptions::fields();
}

std::unique_ptr<Run> ToraImageToVideoPipeline::prepare(const ToraImageToVideoOptions& o) const {
  auto run = prepare_run(o);
  begin_with(*run, o, o.image);
  steer(*run, o, o.steering);
  return run;
}

SF_PIPELINE(ToraImageToVideoPipeline)
    .family("tora")
    .task(Task::ImageToVideo)
    .takes("text_encoder", "T5EncoderModel")
    .takes("transformer", "ToraTransformer3DModel")
    .call(
        "image, prompt, video_flow, negative_prompt, height, width, num_frames, num_inference_steps, timesteps, "
        "guidance_scale, use_dynamic_cfg, num_videos_per_prompt, eta, generator, latents, prompt_embeds, "
        "negative_prompt_embeds, output_type, return_dict, attention_kwargs, callback_on_step_end, "
        "callback_on_step_end_tensor_inputs, max_sequence_length, guidance_mode, trajectories")
    .callbacks("latents, prompt_embeds, negative_prompt_embeds")
    .doc("Clips that begin with a picture, whose things follow trajectories, with Tora.");

}  // namespace sf::diffusion
