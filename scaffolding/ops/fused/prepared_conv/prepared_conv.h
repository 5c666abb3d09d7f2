// Convolutions of stride 1 whose input is made on the way: neither the normalised nor the enlarged picture is ever in
// memory as a whole. Where a gradient is wanted, or no kernel does it in one, they are compositions.
#pragma once
#include "scaffolding/ops/conv/conv.h"

namespace sf {

// conv2d(silu(group_norm(input, num_groups, norm_weight, norm_bias, eps)), weight, bias, padding=padding) + residual,
// of input[N, C, H, W].
Tensor group_norm_silu_conv2d(const Tensor& input, int64_t num_groups, const Tensor& norm_weight,
                              const Tensor& norm_bias, const Tensor& weight, const Tensor& bias = {},
                              const Tensor& residual = {}, double eps = 1e-5, int64_t padding = 1);

// conv2d(interpolate(input, scale_factor=2), weight, bias, padding=padding): each pixel of input[N, C, H,
// W] twice in either direction.
Tensor upsample_conv2d(const Tensor& input, const Tensor& weight, const Tensor& bias = {}, int64_t padding = 1);

}  // namespace sf
