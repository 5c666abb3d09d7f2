// What the stages of a text-to-video training share.
// Everything lies in one folder, and each stage goes on where it was stopped:
//   autoencoder/, text_encoder/, denoiser/   checkpoints, metrics.jsonl, TensorBoard files, samples
//   latents/                  clips and their flow as the autoencoder sees them
//   pipeline/                 what was made: a CogVideoXPipeline or ToraPipeline in diffusers' layout
#pragma once
#include "scaffolding/train/recipe_run.h"
#include "scaffolding/train/text_to_video/clips.h"

namespace sf::train {

struct TextToVideoRun : RecipeRun {
  VideoRecipe recipe;
  std::shared_ptr<const TrainingClips> clips;

  // Opens the data. ValueError where there are none, and for a transformer that is to be steered by clips without
  // trajectories.
  TextToVideoRun(VideoRecipe recipe, std::string output_dir);
};

// The stages, in their order. Each: true where its result is there already, false when SIGINT stopped it; the next call
// goes on.
bool train_tokenizer(const TextToVideoRun& run);    // pipeline/tokenizer: the captions' words
bool train_autoencoder(const TextToVideoRun& run);  // pipeline/vae, whose scaling_factor makes latents of unit variance
bool cache_latents(const TextToVideoRun& run);      // latents/
bool train_text_encoder(const TextToVideoRun& run);  // pipeline/text_encoder, from which the denoiser's goes on
bool train_denoiser(const TextToVideoRun& run);      // pipeline/: what is left of it

}  // namespace sf::train
