// Input of a convolution with a stride of 1 as tiles read it where it lies: the rows of pixels that a block of results
// sees, with their padding, side by side. 16 results of one row are 16 pixels at one distance under every tap, so that
// no tap needs a copy of its own: a ninth of what packed rows take (conv_product.h), and of what packing costs.
// Included only by *.cpu.cpp and *.amx.cpp files; everything lives in namespace sf::SF_ISA.
#pragma once
#include "scaffolding/ops/conv/kernel.h"
#include "scaffolding/ops/matmul/packed_gemm.h"

namespace sf {
namespace SF_ISA {

// Rows are counted over all pictures, each with its padding above and below: result (n, y) begins at row
// n * padded_height + y, and tap (i, j) is i * dilation rows below and j * dilation pixels to the right.
template <class Src> struct StagedRows {
  const Src* data = nullptr;  // null: not staged. Channels-last, first channel of the group
  int64_t pixel = 0;          // stride between pixels: all channels
  int64_t channels = 0, padded = 0;
  int64_t height = 0, width = 0;                // of data
  int64_t results = 0, results_height = 0;      // pixels of a row, rows of a picture
  int64_t padded_height = 0, padded_width = 0;  // of what the results see
  int64_t before[2] = {};                       // padding above, on the left
  int64_t taps_beside = 0;                      // of a row of the kernel
  const int32_t* steps = nullptr;               // elements from a result's first tap to each unit of k

  // Whether a row of taps fits in L1 with what it is multiplied by: its pixels are then read from there, but for the
  // first tap (128 channels, 256 x 256: 7 % faster; 320 channels would be 13 % slower).
  SF_INLINE bool again() const { return taps_beside * padded <= 12 * 32; }
  SF_INLINE int64_t row_of(int64_t result) const {
    const int64_t y = result / results;
    return y / results_height * padded_height + y % results_height;
  }
  SF_INLINE int64_t taps_below() const { return padded_height - results_height; }
  SF_INLINE int64_t most_bytes(int64_t rows_of_results) const {
    const int64_t lines = ceil_div(rows_of_results, results) + 1;
    return (lines + (ceil_div(lines, results_height) + 1) * taps_below()) * padded_width * padded *
               int64_t(sizeof(Src)) +
           4096;
  }
  // Results first .. first + count.
  [[gnu::noinline]] void stage(Src* to, int64_t first, int64_t count) const {
    const int64_t last = row_of(first + count - 1) + taps_below(), line = padded_width * padded;
    for (int64_t row = row_of(first); row <= last; ++row, to += line) {
      const int64_t n = row / padded_height, y = row % padded_height - before[0];
      if (y < 0 || y >= height) {
        std::memset(static_cast<void*>(to), 0, size_t(line) * sizeof(Src));
        continue;
      }
      const int64_t end = min64(padded_width, before[1] + width);
      std::memset(static_cast<void*>(to), 0, size_t(before[1] * padded) * sizeof(Src));
      const Src* from = data + (n * height + y) * width * pixel;
      if (pixel == padded && channels == padded) {
        std::memcpy(static_cast<void*>(to + before[1] * padded), from,
                    size_t((end - before[1]) * padded) * sizeof(Src));
      } else {
        for (int64_t x = before[1]; x < end; ++x, from += pixel) {
          std::memcpy(static_cast<void*>(to + x * padded), from, size_t(channels) * sizeof(Src));
          std::memset(static_cast<void*>(to + x * padded + channels), 0, size_t(padded - channels) * sizeof(Src));
        }
      }
      if (end < padded_width)
        std::memset(static_cast<void*>(to + end * padded), 0, size_t((padded_width - end) * padded) * sizeof(Src));
    }
  }
  // Where the first tap of a result lies among what was staged from `first` on.
  SF_INLINE const Src* at(const Src* staged, int64_t first, int64_t result) const {
    return staged + ((row_of(result) - row_of(first)) * padded_width + result % results) * padded;
  }
};

}  // namespace SF_ISA
}  // namespace sf
