// The contract of framed norms with the backends:
//   y = silu(x / sqrt(mean of squares over the channels + eps) * (1 + scale) + shift)
// x[N, C, T, H, W] and y[N, C, before + T + behind, H + 2 border, W + 2 border] are channels-last, of one floating
// dtype. Around the result are its first and its last frame again and, with border 1, of each picture the lines and
// columns that lie behind its outermost ones, reflected; H and W are 2 or more then. scale and shift[N, C] are
// contiguous float32, or both undefined.
#pragma once
#include "scaffolding/core/kernel.h"

namespace sf {

struct FramedNormForward {
  TensorView x, y, scale, shift;
  double eps = 1e-8;
  int64_t before = 0, behind = 0, border = 0;
};
extern KernelTable<FramedNormForward> framed_norm_forward;

}  // namespace sf
