#include "scaffolding/diffusion/pipelines/ltx2/pipeline_ltx2_image2video.h"

#include "scaffolding/diffusion/pipelines/registry.h"

namespace sf::diffusion {

OptionFields LTX2ImageToVideoOptions::fields() {
  return OptionFields{
             {"image", &image, "the picture that the clip begins with, or a list of them, as large as the clip",
              OptionRole::Picture},
             {"image_crf", &image_crf,
              "how much H.264 takes from the picture, 0 (nothing) to 51; None: 33, as from those of the "
              "training"}} +
         LTX2Options::fields();
}

std::unique_ptr<Run> LTX2ImageToVideoPipeline::prepare(const LTX2ImageToVideoOptions& o) const {
  auto run = prepare_run(o);
  begin_with_picture(*run, o, o.image);
  return run;
}

SF_PIPELINE(LTX2ImageToVideoPipeline)
    .family("ltx2")
    .task(Task::ImageToVideo)
    .optional("processor, prompt_enhancer, duration_head")
    .takes("transformer", "LTX2VideoTransformer3DModel")
    .takes("connectors", "LTX2TextConnectors")
    .takes("text_encoder", "Gemma3TextModel")
    .takes("vae", "AutoencoderKLLTX2Video")
    .takes("audio_vae", "AutoencoderKLLTX2Audio")
    .call(
        "image, prompt, negative_prompt, height, width, num_frames, min_seconds, max_seconds, frame_rate, "
        "motion_speed, num_inference_steps, "
        "sigmas, timesteps, guidance_scale, stg_scale, modality_scale, guidance_rescale, audio_guidance_scale, "
        "audio_stg_scale, audio_modality_scale, audio_guidance_rescale, spatio_temporal_guidance_blocks, noise_scale, "
        "num_videos_per_prompt, generator, latents, audio_latents, prompt_embeds, prompt_attention_mask, "
        "negative_prompt_embeds, negative_prompt_attention_mask, decode_timestep, decode_noise_scale, "
        "use_cross_timestep, system_prompt, enable_prompt_enhancement, prompt_max_new_tokens, "
        "prompt_enhancement_kwargs, prompt_enhancement_seed, image_crf, output_type, return_dict, "
        "attention_kwargs, callback_on_step_end, callback_on_step_end_tensor_inputs, max_sequence_length, "
        "guidance_mode")
    .callbacks("latents, audio_latents, prompt_embeds, negative_prompt_embeds")
    .doc("Clips with sound that begin with a picture, with LTX-2.");

}  // namespace sf::diffusion
