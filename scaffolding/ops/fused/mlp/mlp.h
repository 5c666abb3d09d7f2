// Two linear layers with an activation between them, as one op: the gradient passes the activation in a product's own
// pass where a kernel does that.
#pragma once
#include "scaffolding/core/tensor.h"

namespace sf {

// act(input[..., K] @ weight_1[H, K]^T + bias_1[H]) @ weight_2[N, H]^T + bias_2[N]; activation as linear_act's.
// Biases may be absent.
Tensor mlp(const Tensor& input, const Tensor& weight_1, const Tensor& bias_1, const Tensor& weight_2,
           const Tensor& bias_2 = {}, const std::string& activation = "gelu_tanh");

}  // namespace sf
