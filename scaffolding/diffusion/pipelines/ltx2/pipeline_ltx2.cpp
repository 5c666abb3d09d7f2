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
    .call(ltx2_arguments())
    .callbacks("latents, audio_latents, prompt_embeds, negative_prompt_embeds")
    .doc("Text to clips with sound, with LTX-2.");

}  // namespace sf::diffusion
