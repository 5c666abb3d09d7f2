// Lossy WebP's colours: the contract with the kernels of the instruction sets. They give libwebp's own bytes, in a
// third of its time. Single-threaded by design, as decoding is.
#pragma once
#include "scaffolding/core/kernel.h"

namespace sf::io {

// rgb[height, width, 3] from luma y[height, width] and chroma u, v[(height + 1) / 2, (width + 1) / 2], all contiguous.
// Chroma is interpolated linearly ("fancy upsampling"), the matrix is ITU-R 601's of limited range in libwebp's 14
// bits.
struct YuvToRgb {
  const uint8_t *y, *u, *v;
  uint8_t* rgb;
  int64_t height, width;
  uint16_t* scratch;  // [yuv_scratch(width)]
};
constexpr int64_t yuv_scratch(int64_t width) { return 2 * ((width + 1) / 2 + 64); }
extern KernelTable<YuvToRgb> yuv_to_rgb;

}  // namespace sf::io
