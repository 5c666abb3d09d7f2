// The affine pieces of diffusion transformers' adaptive layers: conditioning [B, C] applied to tokens [B, ..., C].
#pragma once
#include "scaffolding/core/tensor.h"

namespace sf {

Tensor modulate(const Tensor& input, const Tensor& scale, const Tensor& shift);          // input * (1 + scale) + shift
Tensor gated_residual(const Tensor& residual, const Tensor& gate, const Tensor& input);  // residual + gate * input

}  // namespace sf
