// A run that starts from the weights of a pipeline instead of from nothing:
// `scaffolding train --pretrained models/emoji-128`.
#pragma once
#include "scaffolding/nn/module.h"
#include "scaffolding/train/recipe_run.h"

namespace sf::train {

// Takes the pipeline's weights as float32: its tokenizer and autoencoder become the run's, whose stages are then done;
// text encoder and denoiser ("unet", "transformer"), and the autoencoder too where it is trained on, are put where
// their stages look for them. What the run has already is kept. ValueError for a folder that is no such pipeline;
// weights that do not fit the recipe's configs are refused where they are used.
void take_pretrained(const RecipeRun& run, const std::string& pipeline, const std::string& denoiser,
                     const AutoencoderRecipe& autoencoder);

// The weights of that part into the model, where the run has taken any. may_lack: beginnings of the names of tensors
// that keep what the model has where the part is without them.
void load_pretrained(const RecipeRun& run, const std::string& part, nn::Module& model,
                     const std::vector<std::string>& may_lack = {});

}  // namespace sf::train
