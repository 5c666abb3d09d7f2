// out = in * (mask ? scale : 0), computed in float32 for 16-bit floats. One shape; mask is bool, with strides of 0
// where it is shared by a channel.
#pragma once
#include "scaffolding/core/kernel.h"

namespace sf {
struct ApplyMask {
  TensorView out, in, mask;
  double scale;
};
extern KernelTable<ApplyMask> apply_mask_kernel;
}  // namespace sf
