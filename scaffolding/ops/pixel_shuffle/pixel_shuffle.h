// Channels to blocks of pixels and back.
#pragma once
#include "scaffolding/core/tensor.h"

namespace sf {

// [..., C * r * r, H, W] -> [..., C, H * r, W * r]: channels become r x r blocks of pixels. Keeps the memory format.
Tensor pixel_shuffle(const Tensor& input, int64_t upscale_factor);
// The inverse: [..., C, H * r, W * r] -> [..., C * r * r, H, W].
Tensor pixel_unshuffle(const Tensor& input, int64_t downscale_factor);
// input[N, C, ...] with C as groups x C/groups, transposed: channels of different groups come to stand side by side
// (Zhang et al. 2017).
Tensor channel_shuffle(const Tensor& input, int64_t groups);

}  // namespace sf
