// A linear layer beside a residual, which the product adds where a kernel does that.
#pragma once
#include "scaffolding/core/tensor.h"

namespace sf {

// residual + input[..., K] @ weight[N, K]^T + bias[N]; residual has the result's shape.
Tensor linear_add(const Tensor& input, const Tensor& weight, const Tensor& bias, const Tensor& residual);

}  // namespace sf
