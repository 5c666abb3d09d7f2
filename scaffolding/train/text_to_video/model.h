// The networks that the last stages train: a text encoder and a transformer, by a recipe.
#pragma once
#include "scaffolding/diffusion/training.h"
#include "scaffolding/models/text_encoders/t5.h"
#include "scaffolding/models/transformers/tora_transformer_3d.h"
#include "scaffolding/tokenizers/tokenizer.h"
#include "scaffolding/train/text_to_video/stage.h"

namespace sf::train {

struct TextToVideoModel : nn::Module {
  std::shared_ptr<models::T5EncoderModel> text_encoder;
  std::shared_ptr<models::CogVideoXTransformer3DModel> transformer;
  SF_MODULE(TextToVideoModel, text_encoder, transformer)
  TextToVideoModel(std::shared_ptr<models::T5EncoderModel> text,
                   std::shared_ptr<models::CogVideoXTransformer3DModel> denoiser);

  // Null where the transformer is CogVideoX's.
  models::ToraTransformer3DModel* steered() const;
  // The transformer's answer for noisy latents [B, T, C, h, w] with embedded captions [B, M, features]. flow: latents
  // as noisy, or undefined; the last `unsteered` samples do not see theirs. positions: rotary_positions_of(noisy).
  Tensor predict(const Tensor& noisy, const Tensor& timesteps, const Tensor& text, const Tensor& flow,
                 int64_t unsteered, const Tensor& positions) const;
};

// The recipe's configs, with the sizes of the data, the tokenizer and the autoencoder.
models::T5Config text_encoder_config(const VideoRecipe& recipe, const tokenizers::Tokenizer& tokenizer);
std::shared_ptr<models::CogVideoXTransformer3DModel> make_transformer(const VideoRecipe& recipe);

}  // namespace sf::train
