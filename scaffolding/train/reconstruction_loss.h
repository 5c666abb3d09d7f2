// What autoencoders of pictures and clips are trained by.
#pragma once
#include "scaffolding/core/tensor.h"

namespace sf::train {

// Mean absolute differences of pictures [B, C, ..., H, W] and, by edge_weight, of their differences between
// neighbouring pixels.
Tensor reconstruction_loss(const Tensor& pictures, const Tensor& wanted, double edge_weight);

}  // namespace sf::train
