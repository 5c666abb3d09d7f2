// Fused convolutions that are no ops: with a result that takes no memory, with a weight that stays in 16 bits
// (ops/conv/narrow_conv.h). Where no kernel does it, or a gradient is wanted, nothing is done and the caller takes the
// steps.
#pragma once
#include "scaffolding/core/tensor.h"

namespace sf {

// residual += conv2d(silu(group_norm(input)), weight, bias, padding=1); else false. No tape sees the write, so residual
// must be the caller's alone. The weight may be in 16 bits.
bool group_norm_silu_conv2d_into(Tensor& residual, const Tensor& input, int64_t num_groups, const Tensor& norm_weight,
                                 const Tensor& norm_bias, const Tensor& weight, const Tensor& bias, double eps);
// group_norm_silu_conv2d and upsample_conv2d with such a weight [O, C, 3, 3] and padding=1, or undefined.
Tensor group_norm_silu_narrow_conv2d(const Tensor& input, int64_t num_groups, const Tensor& norm_weight,
                                     const Tensor& norm_bias, const Tensor& weight, const Tensor& bias,
                                     const Tensor& residual, double eps);
Tensor upsample_narrow_conv2d(const Tensor& input, const Tensor& weight, const Tensor& bias);

}  // namespace sf
