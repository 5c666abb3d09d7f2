// The stage before the denoiser's: a text encoder that already knows what its prompts look like. Small heads on it
// predict the latents of the picture from the prompt alone, which takes a small part of the time that learning the same
// through a UNet's attention takes.
#pragma once
#include <array>

#include "scaffolding/models/text_encoders/clip.h"
#include "scaffolding/nn/linear.h"
#include "scaffolding/tokenizers/clip_tokenizer.h"
#include "scaffolding/train/text_to_image/stage.h"

namespace sf::train {

// Trains until recipe.text_encoder_training.max_steps and writes pipeline/text_encoder. True where that is there
// already. False when SIGINT stopped it: the next call goes on. Needs the tokenizer and the latents.
bool train_text_encoder(const TextToImageRun& run);

// Latents from prompts, twice: from the vector of the end token, which sums the prompt up, and from the last kPatches
// tokens, which are padding in all but the longest prompts and say what one patch of the picture each looks like. So
// the denoiser finds both what and where.
struct TextToLatents : nn::Module {
  static constexpr int64_t kSide = 4, kPatches = kSide * kSide;
  models::CLIPTextModel text_encoder;
  nn::Linear whole_hidden, whole, patches;
  int64_t channels, size;  // of the latents [channels, size, size]
  SF_MODULE(TextToLatents, text_encoder, whole_hidden, whole, patches)
  TextToLatents(models::CLIPTextConfig text, int64_t latent_channels, int64_t latent_size);
  // ids [B, N] -> from the end token and from the patches, each [B, channels, size, size]
  std::array<Tensor, 2> forward(const Tensor& input_ids) const;
};

// The recipe's config with the sizes and ids of the tokenizer.
models::CLIPTextConfig text_encoder_config(const Recipe& recipe, const tokenizers::CLIPTokenizer& tokenizer);
// Ids [prompts, model_max_length], cut or padded. One prompt at least.
Tensor token_ids(const tokenizers::CLIPTokenizer& tokenizer, const std::vector<std::string>& prompts);

}  // namespace sf::train
