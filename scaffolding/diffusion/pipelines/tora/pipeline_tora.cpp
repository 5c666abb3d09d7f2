#include "scaffolding/diffusion/pipelines/tora/pipeline_tora.h"

#include "scaffolding/diffusion/pipelines/registry.h"

namespace sf::diffusion {

std::unique_ptr<Run> ToraPipeline::prepare(const ToraOptions& o) const {
  auto run = prepare_run(o);
  steer(*run, o, o.steering);  // draws before the noise is drawn, as Tora's own pipeline
  draw_latents(*run, o, transformer->config_int("in_channels", 16));
  return run;
}

SF_PIPELINE(ToraPipeline)
    .family("tora")
    .task(Task::TextToVideo)
    .takes("text_encoder", "T5EncoderModel")
    .takes("transformer", "ToraTransformer3DModel")
    .call(
        "prompt, video_flow, negative_prompt, height, width, num_frames, num_inference_steps, timesteps, "
        "guidance_scale, use_dynamic_cfg, num_videos_per_prompt, eta, generator, latents, prompt_embeds, "
        "negative_prompt_embeds, output_type, return_dict, attention_kwargs, callback_on_step_end, "
        "callback_on_step_end_tensor_inputs, max_sequence_length, guidance_mode, trajectories")
    .callbacks("latents, prompt_embeds, negative_prompt_embeds")
    .doc("Text to clips in which things follow trajectories, with Tora.");

}  // namespace sf::diffusion
