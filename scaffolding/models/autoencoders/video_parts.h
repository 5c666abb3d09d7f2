// TakeVideoPart: takes a decoded video in parts, each of its numbers once: values[b, C, t, h, W] of the samples and
// frames from these places on. Parts of the same samples and frames are rows of theirs, from the top down.
#pragma once
#include <functional>

#include "scaffolding/core/tensor.h"

namespace sf::models {

using TakeVideoPart = std::function<void(const Tensor& values, int64_t sample, int64_t frame)>;

}  // namespace sf::models
