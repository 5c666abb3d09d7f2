// What the pipelines of Stable Diffusion 3 and 3.5 share (Esser et al. 2024, arXiv 2403.03206): three text encoders, of
// which T5 may be left out, and a schedule that is shifted by the picture's size where its config asks for that.
#pragma once
#include "scaffolding/diffusion/pipelines/text_to_image.h"

namespace sf::diffusion {

struct StableDiffusion3Options : GenerationOptions {
  StableDiffusion3Options() { guidance_scale = 7; }
  // Of the second text encoder, and of T5; empty: the same as the first's.
  std::vector<std::string> prompt_2, prompt_3, negative_prompt_2, negative_prompt_3;
  Tensor pooled_prompt_embeds, negative_pooled_prompt_embeds;  // [prompts, features], with prompt_embeds
  int64_t max_sequence_length = 256;                           // tokens that T5 reads
  std::optional<double> mu;  // how far the schedule is shifted; absent: by the picture's size, with dynamic shifting
  OptionFields fields();
};

struct StableDiffusion3Embeds {
  Tensor prompt_embeds, negative_prompt_embeds;                // [B, CLIP's tokens and then T5's, features]
  Tensor pooled_prompt_embeds, negative_pooled_prompt_embeds;  // [B, features of both CLIPs]
  std::vector<std::string> truncated;
};

class StableDiffusion3Base : public TextPipeline {
 public:
  Ref<Denoiser> transformer;
  Ref<Scheduler> scheduler;
  Ref<Autoencoder> vae;
  Ref<TextEncoder> text_encoder;
  Ref<const tokenizers::Tokenizer> tokenizer;
  Ref<TextEncoder> text_encoder_2;
  Ref<const tokenizers::Tokenizer> tokenizer_2;
  Ref<TextEncoder> text_encoder_3;  // T5; absent: its tokens are zeros
  Ref<const tokenizers::Tokenizer> tokenizer_3;
  Unused image_encoder, feature_extractor;
  SF_COMPONENTS(transformer, scheduler, vae, text_encoder, tokenizer, text_encoder_2, tokenizer_2, text_encoder_3,
                tokenizer_3, image_encoder, feature_extractor)

  // Of B = prompts * num_images_per_prompt samples; negative ones are undefined without guidance.
  StableDiffusion3Embeds encode_prompt(const StableDiffusion3Options& options) const;
  std::vector<std::pair<std::string, Tensor>> prompt_tensors(const StableDiffusion3Options& options) const;
  int64_t side_multiple() const override;

 protected:
  void check_sd3(const StableDiffusion3Options& o) const;  // what all runs of these check
  void check_patches(int64_t height, int64_t width) const;
  // The beginning of every run: its guidance, what the denoiser is told, and the schedule for pictures of this size.
  void prepare_run(Run& run, const StableDiffusion3Options& o, Size size) const;

 private:
  struct Texts;
  TextEmbeds embeds_of(const Texts& texts, int64_t clip_skip, int64_t max_sequence_length) const;
};

}  // namespace sf::diffusion
