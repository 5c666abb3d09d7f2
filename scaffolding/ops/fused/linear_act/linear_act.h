// A linear layer with its activation in the product's epilogue, and the projections of gated units.
#pragma once
#include "scaffolding/core/tensor.h"

namespace sf {

// act(input[..., K] @ weight[N, K]^T + bias[N]); activation: relu, gelu, gelu_tanh, silu or quick_gelu.
Tensor linear_act(const Tensor& input, const Tensor& weight, const Tensor& bias = {},
                  const std::string& activation = "gelu");
// hidden * gelu(gate) where [hidden, gate] = input @ weight[2 N, K]^T + bias, diffusers' GEGLU; silu for SwiGLU.
Tensor linear_geglu(const Tensor& input, const Tensor& weight, const Tensor& bias = {});
Tensor linear_swiglu(const Tensor& input, const Tensor& weight, const Tensor& bias = {}, bool gate_first = false);

}  // namespace sf
