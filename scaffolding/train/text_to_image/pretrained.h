// A run that starts from the weights of a pipeline instead of from nothing:
// `scaffolding train --pretrained models/emoji-128`.
#pragma once
#include "scaffolding/nn/module.h"
#include "scaffolding/train/text_to_image/stage.h"

namespace sf::train {

// Takes the pipeline's weights as float32: its tokenizer and autoencoder become the run's, whose stages are then done;
// text encoder and UNet are put where their stages look for them. What the run has already is kept. ValueError for a
// folder that is no such pipeline; weights that do not fit the recipe's configs are refused where they are used.
void take_pretrained(const TextToImageRun& run, const std::string& pipeline);

// The weights of that part into the model, where the run has taken any.
void load_pretrained(const TextToImageRun& run, const std::string& part, nn::Module& model);

}  // namespace sf::train
