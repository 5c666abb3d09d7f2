// Work on the pixels of drawings: the contract with the instruction sets' kernels. Pixels are interleaved. Every
// instruction set gives the same bits: nothing is fused, so that a training is the same on any machine.
// Single-threaded by design: the loader's workers are the parallelism.
#pragma once
#include "scaffolding/core/kernel.h"

namespace sf::data {

// out[pixels, 4] = in[pixels, 4], its colours times its opacity, from 0 to 255.
struct WeightPixels {
  const uint8_t* in;
  float* out;
  int64_t pixels;
};
extern KernelTable<WeightPixels> icon_weight;

// A weighted drawing [height, width, 4] put on canvas [size, size, 4], whose last channel is unused, where that's
// [top, bottom) x [left, right).
struct PutPixels {
  const float* icon;
  int64_t width, height;
  float* canvas;
  int64_t size, left, right, top, bottom;
  double x, y;  // of the drawing's middle on the canvas
  double scale, cosine, sine;
  bool mirrored;
  int samples;  // of a pixel, each way; 1 to 8. 0: pixels fall on pixels, the drawing's first at (x, y)
};
extern KernelTable<PutPixels> icon_put;

// out[pixels, 3] = in[pixels, 4], rounded.
struct CanvasPixels {
  const float* in;
  uint8_t* out;
  int64_t pixels;
};
extern KernelTable<CanvasPixels> icon_canvas_bytes;

}  // namespace sf::data
