// Work on the pixels of one picture: the contract with the instruction sets' kernels. Rows of pixels [H, W, C], uint8,
// contiguous. Single-threaded by design: the loader's workers are the parallelism.
#pragma once
#include "scaffolding/core/kernel.h"

namespace sf::data {

// One direction of a resize: out[o] = clip((sum over k of in[first[o] + k] * weight[o, k] + 2^21) >> 22),
// Pillow's integers.
// Along columns: in [rows, in_size, C], out [rows, out_size, C]. Along rows: in [in_size, rows * C], out [out_size,
// rows * C] (the name `rows` then counts pixels of a row).
struct ResizePass {
  const uint8_t* in;
  uint8_t* out;
  int64_t rows, in_size, out_size;
  int channels;
  bool along_rows;
  const int32_t* first;   // [out_size]
  const int32_t* count;   // [out_size], at most `taps`
  const int32_t* weight;  // [out_size, taps], 22 fractional bits; zero behind `count`
  int taps;               // a multiple of 4
};
// out[C, pixels] (float) = in[pixels, C] * scale[C] + shift[C]
struct PixelsToFloat {
  const uint8_t* in;
  float* out;
  int64_t pixels;
  int channels;
  const float* scale;
  const float* shift;
};
// out[pixels, C-1] = in[pixels, C] over `colour`, rounded; the last channel of in is straight alpha.
struct CompositePixels {
  const uint8_t* in;
  uint8_t* out;
  int64_t pixels;
  int channels;  // of in: 2 or 4
  uint8_t colour[3];
};
extern KernelTable<ResizePass> picture_resize;
extern KernelTable<PixelsToFloat> picture_to_float;
extern KernelTable<CompositePixels> picture_composite;

}  // namespace sf::data
