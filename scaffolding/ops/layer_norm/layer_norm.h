// Layer normalisation over the last dimensions, and its fused forms: with the addition of a residual before it and the
// AdaLN modulation after it.
#pragma once
#include <tuple>

#include "scaffolding/core/tensor.h"

namespace sf {

// y = (input - mean) / sqrt(var + eps) * weight + bias, statistics over the last dimensions normalized_shape.
Tensor layer_norm(const Tensor& input, const Shape& normalized_shape, const Tensor& weight = {},
                  const Tensor& bias = {}, double eps = 1e-5);
// s = input + residual, (layer_norm(s), s): one pass over memory.
std::tuple<Tensor, Tensor> add_layer_norm(const Tensor& input, const Tensor& residual, const Tensor& weight = {},
                                          const Tensor& bias = {}, double eps = 1e-5);
// layer_norm(input[B, ..., C]) * (1 + scale[B, C]) + shift[B, C], as in AdaLN.
Tensor layer_norm_modulate(const Tensor& input, const Tensor& scale, const Tensor& shift, const Tensor& weight = {},
                           const Tensor& bias = {}, double eps = 1e-6);

}  // namespace sf
