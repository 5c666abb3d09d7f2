// What the stages of a text-to-image training share.
// Everything lies in one folder, and each stage goes on where it was stopped:
//   autoencoder/, text_encoder/, denoiser/   checkpoints, metrics.jsonl, TensorBoard files, sample grids
//   latents.safetensors       the icons as the autoencoder sees them; none of a recipe with a composition
//   pipeline/                 what was made: a StableDiffusionPipeline in diffusers' layout
#pragma once
#include "scaffolding/train/recipe_run.h"
#include "scaffolding/train/text_to_image/recipe.h"

namespace sf::train {

struct TextToImageRun : RecipeRun {
  Recipe recipe;
  std::shared_ptr<const data::IconDataset> icons;
  std::shared_ptr<const data::ComposedIcons> composed;  // null without a composition

  // Opens the data. ValueError where there are none.
  TextToImageRun(Recipe recipe, std::string output_dir);
  std::shared_ptr<const data::Dataset> pictures() const;  // what the autoencoder is trained on
};

}  // namespace sf::train
