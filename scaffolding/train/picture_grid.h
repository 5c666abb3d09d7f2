// Pictures of one size as one.
#pragma once
#include "scaffolding/core/tensor.h"

namespace sf::train {

// Pictures uint8 [3, H, W] side by side, `columns` in a row.
Tensor picture_grid(const Tensors& pictures, int64_t columns);

}  // namespace sf::train
