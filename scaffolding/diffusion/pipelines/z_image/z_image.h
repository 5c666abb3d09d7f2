// What Z-Image's pipelines share (Z-Image team 2025, arXiv 2511.22699): prompts that Qwen3 reads as a user's message,
// captions of several lengths, guidance beyond the conditional output, and a flow that is told how far it is.
#pragma once
#include "scaffolding/diffusion/pipelines/text_to_image.h"

namespace sf::diffusion {

struct ZImageOptions : GenerationOptions {
  // [prompts, tokens]: 0 behind the tokens of prompts that are shorter than others; they go with embeds
  Tensor prompt_attention_mask, negative_prompt_attention_mask;
  double cfg_normalization = 0;       // above 0: Guidance::most_norm
  double cfg_truncation = 1;          // how far the way to the picture is guided: 0 to 1
  int64_t max_sequence_length = 512;  // tokens of a prompt
  ZImageOptions();
  OptionFields fields();
};

// Captions of B samples: embeds[B, M, features], of which each has `lengths` tokens, with anything behind them.
struct ZImageCaptions {
  Tensor embeds;
  std::vector<int64_t> lengths;
  std::vector<std::string> truncated;  // of prompts that were too long
  Tensor mask() const;                 // int64 [B, M]; undefined where all are of one length
};

struct ZImageRun : Run {
  double truncation = 1;  // no guidance is left once more than this part of the way is behind
  Tensor& prompt_embeds() { return told.of(ArgumentRole::Text); }
  Tensor told_times(const Tensor& timesteps) const override;
  Tensor as_predicted(const Tensor& output) const override;
  DenoiserCall joined(const std::vector<DenoiserCall>& calls) const override;

 protected:
  void prepare_step() override;
  void advance(const Tensor& model_output) override;
};

class ZImageBase : public TextPipeline {
 public:
  Ref<Autoencoder> vae;
  Ref<TextEncoder> text_encoder;
  Ref<const tokenizers::Tokenizer> tokenizer;
  Ref<Scheduler> scheduler;
  Ref<Denoiser> transformer;
  SF_COMPONENTS(vae, text_encoder, tokenizer, scheduler, transformer)

  // Of each prompt, and with guidance of its negative one (else without embeds).
  std::pair<ZImageCaptions, ZImageCaptions> encode_prompt(const ZImageOptions& options) const;
  std::vector<std::pair<std::string, Tensor>> prompt_tensors(const ZImageOptions& options) const;
  Size size(std::optional<int64_t> height = {}, std::optional<int64_t> width = {}) const override;
  int64_t side_multiple() const override;

 protected:
  // The checks, the prompts and the schedule of a picture of this size; then the latents are the caller's.
  std::unique_ptr<ZImageRun> prepare_run(const ZImageOptions& options, const Size& size) const;
  // Latents [B, C, h, w] of a picture of this size.
  Shape latent_shape(const ZImageOptions& options, const Size& size) const;
  Guidance guidance_of(const ZImageOptions& options) const;

 private:
  ZImageCaptions read(std::vector<std::string> prompts, int64_t length) const;
  StepSchedule schedule_of(Scheduler& scheduler, const ZImageOptions& options, int64_t patches) const;
};

}  // namespace sf::diffusion
