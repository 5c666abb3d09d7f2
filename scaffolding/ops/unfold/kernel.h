// Plain data between unfold, fold and their kernels.
#pragma once
#include "scaffolding/core/kernel.h"

namespace sf {

// image: dense [N, C, H, W]; columns: dense [N, C, kh, kw, oh, ow]. Element [i, j, y, x] of a channel's columns is the
// image's [y * stride[0] - padding[0] + i * dilation[0], ...], or 0 outside.
struct Unfold {
  void *image, *columns;
  DType dtype;
  int64_t planes;  // N * C
  int64_t size[2], kernel[2], out[2], stride[2], padding[2], dilation[2];
};
extern KernelTable<Unfold> unfold_kernel;  // columns from image; bytes are only moved
extern KernelTable<Unfold> fold_kernel;    // image = sums of columns; float32 or float64

}  // namespace sf
