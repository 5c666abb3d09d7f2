// Activations that are quantised to float8 by rows as they are made, so that no pass of its own does that, and products
// that read them. Where no gradient is recorded; not ops of the registry. Without a kernel they are compositions of
// quantize_fp8 and scaled_mm.
#pragma once
#include "scaffolding/core/tensor.h"

namespace sf {

// q in float8_e4m3fn has the shape of what was quantised; row r is near q[r] * scale[r], scale float32 [rows, 1] as
// quantize_fp8 measures it.
struct Float8Rows {
  Tensor q, scale;
};
// Of layer_norm(x, [C], weight, bias, eps) over the last dimension C; weight and bias may be absent.
Float8Rows layer_norm_fp8(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps);
// Of hidden * gelu(gate) where the last dimension of projection is [hidden, gate].
Float8Rows geglu_fp8(const Tensor& projection);
// x W^T + bias + residual in dtype, where W [N, K] = weight * scale is in float8 with scale [N, 1];
// bias and residual may be absent.
Tensor linear_of_fp8(const Float8Rows& x, const Tensor& weight, const Tensor& scale, const Tensor& bias,
                     const Tensor& residual, DType dtype);

}  // namespace sf
