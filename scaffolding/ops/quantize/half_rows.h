// Products of float32 with weights that stay in 16 bits, as a file has them: what they are in float32, to the bit of
// the product, in half the memory.
#pragma once
#include "scaffolding/core/tensor.h"
#include "scaffolding/ops/quantize/product_end.h"

namespace sf {

// linear(input, weight, bias) + residual with a frozen weight [N, K] of float16 or bfloat16; it becomes input's dtype
// while it is multiplied: on the CPU no whole copy is made, nor kept. The gradient goes to input, bias and residual. Of
// input's own dtype, or wider, it is a plain linear's. RuntimeError for a weight that learns.
Tensor linear_half(const Tensor& input, const Tensor& weight, const Tensor& bias = {}, const Tensor& residual = {});
Tensor linear_half_with(const Tensor& input, const Tensor& weight, const Tensor& bias, const ProductEnd& end);

}  // namespace sf
