// Resizing of pictures with Pillow's arithmetic (libImaging/Resample.c): equal to PIL.Image.resize bit for bit,
// pictures with alpha included, whose colours are weighted by it. Functions only; any thread.
#pragma once
#include <string_view>

#include "scaffolding/core/tensor.h"

namespace sf::data {

enum class Filter : uint8_t { Nearest, Box, Bilinear, Hamming, Bicubic, Lanczos };
Filter filter(
    std::string_view name);  // "nearest", "box", "bilinear", "hamming", "bicubic", "lanczos"; ValueError otherwise

// image: uint8 [C, H, W], C = 1 to 4, any strides. The result lies in memory as [height, width, C]. Filters widen when
// shrinking (antialias), except Nearest.
Tensor resize(const Tensor& image, int64_t height, int64_t width, Filter filter = Filter::Bilinear);

}  // namespace sf::data
