// The contract of spatial_norm_silu with the backends:
//   y = silu(((x - mean) * rstd * weight + bias) * scale + shift)
// x and y[N, C, T, H, W], scale and shift[N, C, t, h, w] are channels-last, of one floating dtype; H and W are whole
// multiples of h and w, whose numbers are repeated. T is one of t too; where `first_apart`, T - 1 of t - 1,
// after a first frame that has numbers of its own. mean and rstd[N, groups], weight and bias[C] are contiguous float32.
#pragma once
#include "scaffolding/core/kernel.h"

namespace sf {

struct SpatialNormForward {
  TensorView x, weight, bias, mean, rstd, scale, shift, y;
  int64_t groups = 1;
  bool first_apart = false;
};
extern KernelTable<SpatialNormForward> spatial_norm_forward;

}  // namespace sf
