// Products of int8 matrices, summed in int32: exact, and modulo 2^32 where a sum does not fit, as in torch.
#pragma once
#include "scaffolding/core/tensor.h"

namespace sf {

// torch._int_mm: input[M, K] @ mat2[K, N], both int8, as int32[M, N]. Integers have no gradient.
Tensor int_mm(const Tensor& input, const Tensor& mat2);

}  // namespace sf
