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
    .call(ltx2_arguments("image, ", "image_crf, "))
    .callbacks("latents, audio_latents, prompt_embeds, negative_prompt_embeds")
    .doc("Clips with sound that begin with a picture, with LTX-2.");

}  // namespace sf::diffusion
