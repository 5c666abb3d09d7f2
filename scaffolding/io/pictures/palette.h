// A picture in few colours: the best palette of its own, and its pixels as places in it. Not public; functions only.
#pragma once
#include <array>

#include "scaffolding/core/tensor.h"

namespace sf::io {

using Colour = std::array<uint8_t, 3>;

// At most `count` (2 to 256) colours for pixels uint8 [H, W, 3]. Exact where the picture has no more; else boxes of its
// colours are halved where the squared error is largest (Heckbert 1982 with Wu's criterion), then moved to the means of
// the pixels nearest to them.
std::vector<Colour> palette_of(const Tensor& pixels, int count);

// The place in the palette of each pixel, row by row. With dither the error goes to the neighbours (Floyd and Steinberg
// 1976, rows alternating in direction).
std::vector<uint8_t> indexed(const Tensor& pixels, const std::vector<Colour>& palette, bool dither);

}  // namespace sf::io
