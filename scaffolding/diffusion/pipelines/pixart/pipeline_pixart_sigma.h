// PixArtSigmaPipeline: text to pictures with PixArt-Sigma (Chen et al. 2024, arXiv 2403.04692), whose prompts T5 reads.
#pragma once
#include "scaffolding/diffusion/pipelines/text_to_image.h"

namespace sf::diffusion {

struct PixArtSigmaOptions : GenerationOptions {
  // [prompts, tokens]: 0 where embeds are of padding; they go with embeds
  Tensor prompt_attention_mask, negative_prompt_attention_mask;
  bool use_resolution_binning =
      true;  // computed in the nearest size that the network was trained on, then resized and cropped
  int64_t max_sequence_length = 300;  // tokens of a prompt
  PixArtSigmaOptions();
  OptionFields fields();
};

struct PixArtSigmaEmbeds {
  Tensor prompt_embeds, prompt_attention_mask;                    // [B, tokens, features], [B, tokens]
  Tensor negative_prompt_embeds, negative_prompt_attention_mask;  // undefined without guidance
  std::vector<std::string> truncated;
};

struct PixArtSigmaPipeline : PipelineOf<PixArtSigmaPipeline, PixArtSigmaOptions, TextPipeline> {
  static constexpr const char* kName = "PixArtSigmaPipeline";
  Ref<const tokenizers::Tokenizer> tokenizer;
  Ref<TextEncoder> text_encoder;
  Ref<Autoencoder> vae;
  Ref<Denoiser> transformer;
  Ref<Scheduler> scheduler;
  SF_COMPONENTS(tokenizer, text_encoder, vae, transformer, scheduler)

  // Of B = prompts * num_images_per_prompt samples. Prompts are made lower case.
  PixArtSigmaEmbeds encode_prompt(const PixArtSigmaOptions& options) const;
  std::vector<std::pair<std::string, Tensor>> prompt_tensors(const PixArtSigmaOptions& options) const;
  std::unique_ptr<Run> prepare(const PixArtSigmaOptions& options) const;
};

}  // namespace sf::diffusion
