// slerp: the walk on a sphere from one noise or embedding to another. A straight line would pass through points that
// are shorter than what a model was trained on (White 2016, arXiv 1609.04468).
#pragma once
#include <optional>

#include "scaffolding/core/tensor.h"

namespace sf::diffusion {

// At `t` from 0 (from) to 1 (to). The angle is between the whole tensors, or along `dim` between each pair of vectors;
// lengths go straight from one to the other, and directions that are nearly parallel or opposite are mixed straight.
// Computed in float32, in the inputs' dtype; ValueError for two shapes.
Tensor slerp(const Tensor& from, const Tensor& to, double t, std::optional<int64_t> dim = {});

}  // namespace sf::diffusion
