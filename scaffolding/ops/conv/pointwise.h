// Which convolutions are matrix products of pixels as they lie.
#pragma once
#include "scaffolding/ops/conv/kernel.h"

namespace sf {

// One tap, one group, a stride of 1, channels-last.
SF_INLINE bool is_pointwise(const ConvForward& f) {
  for (int i = 0; i < f.x.ndim - 2; ++i)
    if (f.weight.sizes[i + 2] != 1 || f.shape.stride[i] != 1 || f.shape.padding[i] != 0) return false;
  return f.shape.groups == 1 && f.x.is_channels_last() && f.y.is_channels_last() &&
         (!f.residual || f.residual.is_channels_last());
}

}  // namespace sf
