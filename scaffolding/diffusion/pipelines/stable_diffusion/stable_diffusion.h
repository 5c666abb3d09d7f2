// What the pipelines of Stable Diffusion 1 and 2 share: components, and prompts that one text encoder reads.
#pragma once
#include "scaffolding/diffusion/pipelines/text_to_image.h"

namespace sf::diffusion {

struct StableDiffusionEmbeds {
  Tensor prompt_embeds, negative_prompt_embeds;  // [B, tokens, features]; the second undefined without guidance
  std::vector<std::string> truncated;
};

struct StableDiffusionRun : Run {
  Tensor negative_prompt_embeds;  // for callbacks; the denoiser sees them beside the positive ones
  Tensor& prompt_embeds() { return told.of(ArgumentRole::Text); }

 protected:
  void keep_more(const Tensor& places) override;
};

class StableDiffusionBase : public TextPipeline {
 public:
  Ref<Autoencoder> vae;
  Ref<TextEncoder> text_encoder;
  Ref<const tokenizers::Tokenizer> tokenizer;
  Ref<Denoiser> unet;
  Ref<Scheduler> scheduler;
  Unused safety_checker, feature_extractor, image_encoder;
  bool requires_safety_checker = true;  // of diffusers, where it warns; pictures are not checked here
  SF_COMPONENTS(vae, text_encoder, tokenizer, unet, scheduler, safety_checker, feature_extractor, image_encoder)
  io::Fields fields() override { return {{"requires_safety_checker", &requires_safety_checker}}; }

  // Of B = prompts * num_images_per_prompt samples.
  StableDiffusionEmbeds encode_prompt(const GenerationOptions& options) const;

 protected:
  // What every run of these has: prompts, the schedule, of which with `strength` only that last share is run, and the
  // denoiser's arguments. The latents are the pipeline's part; their dtype is that of the embeds.
  void prepare_run(StableDiffusionRun& run, const GenerationOptions& o, std::optional<double> strength = {}) const;
  // The latents of a run that begins with a picture: encoded, with as much noise as its first timestep has.
  void begin_with_picture(StableDiffusionRun& run, const GenerationOptions& o, const Tensor& image) const;
  std::vector<std::pair<std::string, Tensor>> prompt_tensors(const GenerationOptions& o) const {
    auto e = encode_prompt(o);
    return {{"prompt_embeds", e.prompt_embeds}, {"negative_prompt_embeds", e.negative_prompt_embeds}};
  }
};

}  // namespace sf::diffusion
