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

// linear_geglu (or, with silu, linear_swiglu) with h[..., R] @ up[2 N, R]^T added to the projection before its gate:
// for ops that are made of one. Off the tape; absent where no kernel does it.
Tensor linear_gated_beside(const Tensor& input, const Tensor& weight, const Tensor& bias, bool silu, const Tensor& h,
                           const Tensor& up);

}  // namespace sf
