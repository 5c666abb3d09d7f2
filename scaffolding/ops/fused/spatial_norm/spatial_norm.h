// What CogVideoX's decoder norms its videos with: a group norm whose result latents scale and shift, with SiLU behind.
#pragma once
#include "scaffolding/core/tensor.h"

namespace sf {

// silu(group_norm(input[N, C, T, H, W]) * scale + shift); scale and shift[N, C, t, h, w] are repeated to the input's
// size (repeat_latents). In one pass on the CPU where no gradient is wanted.
Tensor spatial_norm_silu(const Tensor& input, int64_t num_groups, const Tensor& norm_weight, const Tensor& norm_bias,
                         const Tensor& scale, const Tensor& shift, double eps = 1e-6);

// latents[N, C, t, h, w] as a video of `frames` frames of `height` x `width`, by their nearest neighbours; of an odd
// number of frames above one the first stands for itself. What has that size already is given back.
Tensor repeat_latents(const Tensor& latents, int64_t frames, int64_t height, int64_t width);

}  // namespace sf
