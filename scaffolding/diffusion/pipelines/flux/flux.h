// What the pipelines of FLUX.1 share (Black Forest Labs 2024): two text encoders, latents whose patches of 2 x 2 are
// tokens, and the strength of guidance as something that the denoiser is told.
#pragma once
#include "scaffolding/diffusion/pipelines/text_to_image.h"

namespace sf::diffusion {

struct FluxOptions : GenerationOptions {
  FluxOptions();
  // Of T5; empty: the same as CLIP's.
  std::vector<std::string> prompt_2, negative_prompt_2;
  // Above 1, and with a negative prompt: classifier-free guidance, by two calls of the denoiser. guidance_scale is what
  // a denoiser with guidance_embeds is told.
  double true_cfg_scale = 1;
  Tensor pooled_prompt_embeds, negative_pooled_prompt_embeds;  // [prompts, features], with prompt_embeds
  int64_t max_sequence_length = 512;                           // tokens that T5 reads
  OptionFields fields();
};

struct FluxEmbeds {
  Tensor prompt_embeds, negative_prompt_embeds;                // [B, tokens, features]
  Tensor pooled_prompt_embeds, negative_pooled_prompt_embeds;  // [B, features]
  std::vector<std::string> truncated;
};

// Places of tokens [h * w, 3]: which picture, row, column.
Tensor flux_places(int64_t h, int64_t w, DType dtype, Device device, int64_t picture = 0);

// Latents [B, C, h, w] of even sides as tokens [B, h / 2 * w / 2, 4 C], and back.
Tensor packed_latents(const Tensor& latents);
Tensor unpacked_latents(const Tensor& tokens, int64_t h, int64_t w);

struct FluxRun : Run {
  int64_t height = 0, width = 0;  // of latents
  Tensor& prompt_embeds() { return told.of(ArgumentRole::Text); }
  Tensor still(const Tensor& tokens) const override { return unpacked_latents(tokens, height, width); }
  Tensor told_times(const Tensor& timesteps) const override;
  Tensor as_sample(const Tensor& latents) const override { return packed_latents(latents); }
  Tensor as_predicted(const Tensor& output) const override { return still(output); }
  Tensor decodable(const Tensor& tokens) const override { return still(tokens); }
};

class FluxBase : public TextPipeline {
 public:
  Ref<Scheduler> scheduler;
  Ref<Autoencoder> vae;
  Ref<TextEncoder> text_encoder;
  Ref<const tokenizers::Tokenizer> tokenizer;
  Ref<TextEncoder> text_encoder_2;
  Ref<const tokenizers::Tokenizer> tokenizer_2;
  Ref<Denoiser> transformer;
  SF_COMPONENTS(scheduler, vae, text_encoder, tokenizer, text_encoder_2, tokenizer_2, transformer)

  // Of B = prompts * num_images_per_prompt samples; negative ones are undefined without classifier-free guidance.
  FluxEmbeds encode_prompt(const FluxOptions& options) const;
  std::vector<std::pair<std::string, Tensor>> prompt_tensors(const FluxOptions& options) const;
  Size size(std::optional<int64_t> height = {}, std::optional<int64_t> width = {}) const override;  // 1024 x 1024
  int64_t side_multiple() const override;

 protected:
  Guidance guidance(const FluxOptions& o) const;
  void check_flux(const FluxOptions& o) const;  // what all runs of these check
  // The beginning of every run: its size, guidance and schedule, and what the denoiser is told but for the sample.
  void prepare_run(FluxRun& run, const FluxOptions& o) const;
  // The latents of a run that begins with pictures [n, 3, H, W] in [-1, 1] or latents: as noisy as the schedule begins.
  Tensor noised_picture(FluxRun& run, const FluxOptions& o, const Tensor& image) const;
  // [B, C, h, w] of a run's latents
  Shape latent_shape(const FluxRun& run, const FluxOptions& o) const;
  // The caller's tokens; ValueError where they do not fit the run.
  Tensor given_latents(FluxRun& run, const FluxOptions& o) const;
};

// Of pipelines whose folders may name an IP adapter's parts, which are not used.
class FluxAdapterBase : public FluxBase {
 public:
  Unused image_encoder, feature_extractor;
  SF_COMPONENTS(scheduler, vae, text_encoder, tokenizer, text_encoder_2, tokenizer_2, transformer, image_encoder,
                feature_extractor)
};

}  // namespace sf::diffusion
