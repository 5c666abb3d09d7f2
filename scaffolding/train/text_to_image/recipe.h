// Recipe: everything that decides a text-to-image model trained from captioned icons: the data, the configs of its
// parts, and how long and with what each stage is trained. Read from JSON (models/emoji-128/train.json).
#pragma once
#include "scaffolding/data/composed_icons.h"
#include "scaffolding/diffusion/schedulers/scheduler.h"
#include "scaffolding/train/stage_recipe.h"

namespace sf::train {

struct IconDenoiserRecipe : DenoiserRecipe {
  int64_t backgrounds = 3;  // latents cached for each icon besides the one on white
  // How often a step sees each picture of its batch, each time with noise and a timestep of its own: where making and
  // encoding pictures takes longer than learning from them, as on GPUs.
  int64_t noises = 1;
  io::Fields fields();
};

struct Recipe {
  std::string data;  // the tar; relative to the recipe's folder
  data::IconOptions icons;
  // Present: every picture is composed when it is asked for, and encoded then. Absent: icons as they are, encoded once.
  std::optional<data::CompositionOptions> composition;
  int64_t seed = 0, vocab_size = 4096, max_tokens = 32;
  io::Object vae, text_encoder, unet, scheduler;  // configs, as their config.json
  AutoencoderRecipe autoencoder;
  StageRecipe text_encoder_training;  // max_steps 0: none, it learns with the denoiser alone
  IconDenoiserRecipe denoiser;

  // TypeError and ValueError naming the file and the field. Fields that the file does not name keep their defaults;
  // unknown ones are refused.
  static Recipe read(const std::string& path);
  std::unique_ptr<diffusion::Scheduler> make_scheduler() const;  // of training and of sampling
  void make_smoke();  // the whole chain in a minute: tiny models, few steps. Its pictures are noise.
};

}  // namespace sf::train
