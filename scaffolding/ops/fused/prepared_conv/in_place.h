// A fused convolution that takes no memory for its result.
#pragma once
#include "scaffolding/core/tensor.h"

namespace sf {

// residual += conv2d(silu(group_norm(input)), weight, bias, padding=1), where a kernel does that without a gradient
// being wanted; else false, and nothing is changed. Not an op: no tape sees the write,
// so residual must be the caller's alone.
bool group_norm_silu_conv2d_into(Tensor& residual, const Tensor& input, int64_t num_groups, const Tensor& norm_weight,
                                 const Tensor& norm_bias, const Tensor& weight, const Tensor& bias, double eps);

}  // namespace sf
