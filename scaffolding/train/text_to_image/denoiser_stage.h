// The stages after the autoencoder: a tokenizer, cached latents, then a text encoder and a UNet trained as one.
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

// Ids [prompts, model_max_length], cut or padded. One prompt at least.
Tensor token_ids(const tokenizers::CLIPTokenizer& tokenizer, const std::vector<std::string>& prompts);

}  // namespace sf::train
