// The first stage: an AutoencoderKL that makes latents of icons and icons of latents.
#pragma once
#include "scaffolding/train/text_to_image/stage.h"

namespace sf::train {

// Trains until recipe.autoencoder.max_steps and writes pipeline/vae, whose scaling_factor makes latents of unit
// variance. True where that is there already. False when SIGINT stopped it: the next call goes on.
bool train_autoencoder(const TextToImageRun& run);

}  // namespace sf::train
