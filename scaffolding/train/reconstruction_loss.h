// What autoencoders of pictures and clips are trained by.
#pragma once
#include "scaffolding/core/tensor.h"

namespace sf::train {

// Mean absolute differences of pictures [B, C, ..., H, W] and, by edge_weight, of their differences between
// neighbouring pixels.
Tensor reconstruction_loss(const Tensor& pictures, const Tensor& wanted, double edge_weight);
// What a network begins with that stays at a blank picture by absolute differences alone: mean squares, and a little of
// mean absolute differences.
Tensor square_reconstruction_loss(const Tensor& pictures, const Tensor& wanted);

}  // namespace sf::train
