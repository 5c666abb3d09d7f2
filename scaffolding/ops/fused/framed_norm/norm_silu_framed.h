// What goes into a convolution over time behind a norm, in one pass over memory. Not an op: where no kernel does it, or
// a gradient is wanted, nothing is done and the caller takes the steps.
#pragma once
#include "scaffolding/core/tensor.h"

namespace sf {

// silu(rms_norm over the channels of input[N, C, T, H, W] * (1 + scale) + shift), scale and shift [N, C] or absent; its
// first frame `before` times more before it, its last one `behind` times behind it and, with border 1, one line and
// column around each picture by reflection: channels-last, or undefined.
Tensor rms_norm_silu_framed(const Tensor& input, const Tensor& scale, const Tensor& shift, double eps, int64_t before,
                            int64_t behind, int64_t border);

}  // namespace sf
