#include "scaffolding/diffusion/pipelines/ltx2/pipeline_ltx2.h"

#include "scaffolding/diffusion/pipelines/registry.h"

namespace sf::diffusion {

std::unique_ptr<Run> LTX2Pipeline::prepare(const LTX2Options& o) const {
  auto run = prepare_run(o);
  begin_with_noise(*run, o);
  return run;
}

SF_PIPELINE(LTX2Pipeline)
    .family("ltx2")
    .task(Task::TextToVideo)
    .optional("processor, prompt_enhancer, duration_head")
    .takes("transformer", "LTX2VideoTransformer3DModel")
    .takes("connectors", "LTX2TextConnectors")
    .takes("text_encoder", "Gemma3TextModel")
    .takes("vae", "AutoencoderKLLTX2Video")
    .takes("audio_vae", "AutoencoderKLLTX2Audio")
    .call(
        "prompt, negative_prompt, height, width, num_frames, min_seconds, max_seconds, frame_rate, motion_speed, "
        "num_inference_steps, sigmas, "
        "timesteps, guidance_scale, stg_scale, modality_scale, guidance_rescale, audio_guidance_scale, "
        "audio_stg_scale, audio_modality_scale, audio_guidance_rescale, spatio_temporal_guidance_blocks, noise_scale, "
        "num_videos_per_prompt, generator, latents, audio_latents, prompt_embeds, prompt_attention_mask, "
        "negative_prompt_embeds, negative_prompt_attention_mask, decode_timestep, decode_noise_scale, "
        "use_cross_timestep, system_prompt, enable_prompt_enhancement, prompt_max_new_tokens, "
        "prompt_enhancement_kwargs, prompt_enhancement_seed, output_type, return_dict, "
        "attention_kwargs, callback_on_step_end, callback_on_step_end_tensor_inputs, max_sequence_length, "
        "guidance_mode")
    .callbacks("latents, audio_latents, prompt_embeds, negative_prompt_embeds")
    .doc("Text to clips with sound, with LTX-2.");

}  // namespace sf::diffusion
