// Sizes of PixArt's pictures. Free functions; any thread.
#pragma once
#include <utility>

#include "scaffolding/core/tensor.h"

namespace sf::diffusion {

// {height, width} in pixels, of those that a network with latents of sample_size x sample_size was trained on,
// whose ratio is nearest.
// ValueError for a sample_size other than 32, 64, 128 and 256, and for sizes that are not positive.
std::pair<int64_t, int64_t> trained_size(int64_t height, int64_t width, int64_t sample_size);

// Pictures [B, C, H, W] made large enough or as small as fits (bilinear), and their middle [B, C, height, width].
Tensor resized_and_cropped(const Tensor& pictures, int64_t height, int64_t width);

}  // namespace sf::diffusion
