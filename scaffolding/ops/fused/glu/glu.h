// Gated linear units: half of a projection gates the other half.
#pragma once
#include "scaffolding/core/tensor.h"

namespace sf {

// hidden * act(gate) where input[..., 2C] is hidden then gate (diffusers' GEGLU), or gate first. activation: gelu,
// gelu_tanh, silu, sigmoid or relu.
Tensor glu(const Tensor& input, const std::string& activation = "sigmoid", bool gate_first = false);
Tensor geglu(const Tensor& input, bool gate_first = false);   // gelu (erf)
Tensor swiglu(const Tensor& input, bool gate_first = false);  // silu

}  // namespace sf
