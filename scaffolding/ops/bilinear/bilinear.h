// A form in two vectors.
#pragma once
#include "scaffolding/core/tensor.h"

namespace sf {

// input1[..., I], input2[..., J], weight[O, I, J], bias[O] -> [..., O]: y_o = input1^T weight_o input2 + bias_o.
Tensor bilinear(const Tensor& input1, const Tensor& input2, const Tensor& weight, const Tensor& bias = {});

}  // namespace sf
