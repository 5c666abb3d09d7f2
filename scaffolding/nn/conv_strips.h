// Convolutions whose kernel is stored in other numbers than those multiplied: made a few output channels at a time,
// so that none is ever whole.
#pragma once
#include <functional>

#include "scaffolding/nn/conv.h"

namespace sf::nn {

// What conv.convolve() gives with the kernel of which part(first, channels) makes those output channels, in input's
// dtype. Whole where a gradient is recorded, for groups and on GPUs.
Tensor convolve_in_strips(const Conv2d& conv, const Tensor& input,
                          const std::function<Tensor(int64_t first, int64_t channels)>& part);

}  // namespace sf::nn
