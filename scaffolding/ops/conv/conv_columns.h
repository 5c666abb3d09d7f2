// The pixels that each output of a convolution sees, as rows of a matrix, on CUDA.
#pragma once
#include "scaffolding/ops/conv/kernel.h"

namespace sf::cuda {

// col[group][row][tap][c] = image[n, at(row, tap), group * channels + c] or 0 where that lies outside, for rows `first`
// .. first + rows - 1 of all N x out pixels. image is channels-last. Forwards at = out * stride - padding + tap *
// dilation; backwards, for the gradient of the input, the pixel whose tap shows `out`: (out + padding - tap * dilation)
// / stride where that is whole.
struct ConvColumns {
  const void* image = nullptr;
  void* col = nullptr;
  DType dtype = kFloat32;
  Device device;
  int64_t groups = 1, channels = 1;  // of a group
  int64_t size[3] = {1, 1, 1}, kernel[3] = {1, 1, 1}, out[3] = {1, 1, 1};
  int64_t stride[3] = {1, 1, 1}, padding[3] = {0, 0, 0}, dilation[3] = {1, 1, 1};
  bool backwards = false;
  int64_t first = 0, rows = 0;
};
// On the device's current stream; groups * rows * taps * channels < 2^31.
void write_columns(const ConvColumns& c);

}  // namespace sf::cuda
