// A convolution of signals beside a shortcut.
#pragma once
#include "scaffolding/nn/conv.h"

namespace sf::models {

// residual + conv(x), which the convolution adds where nobody looks at it and no gradient is recorded. x and residual
// [B, C, L], of a convolution that keeps the length.
Tensor conv_beside(const Tensor& residual, const nn::Conv1d& conv, const Tensor& x);

}  // namespace sf::models
