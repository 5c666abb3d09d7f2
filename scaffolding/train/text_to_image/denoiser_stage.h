// The stages after the autoencoder: a tokenizer and cached latents, which the text encoder's stage needs too, then a
// UNet and the text encoder trained as one.
#pragma once
#include "scaffolding/models/text_encoders/clip.h"
#include "scaffolding/models/unets/unet_2d_condition.h"
#include "scaffolding/tokenizers/clip_tokenizer.h"
#include "scaffolding/train/text_to_image/stage.h"

namespace sf::train {

// Each: true where its result is there already, false when SIGINT stopped it; the next call goes on.
bool train_tokenizer(const TextToImageRun& run);
bool cache_latents(const TextToImageRun& run);
bool train_denoiser(const TextToImageRun& run);  // writes pipeline/text_encoder, unet, scheduler and model_index.json

struct TextToImageModel : nn::Module {
  models::CLIPTextModel text_encoder;
  models::UNet2DConditionModel unet;
  SF_MODULE(TextToImageModel, text_encoder, unet)
  TextToImageModel(models::CLIPTextConfig text, models::UNet2DConditionConfig denoiser);
};

}  // namespace sf::train
