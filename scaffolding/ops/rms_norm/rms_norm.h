// Root-mean-square normalisation over the last dimensions, and its fused forms.
#pragma once
#include <tuple>

#include "scaffolding/core/tensor.h"

namespace sf {

// y = input / sqrt(mean(input^2) + eps) * weight over the last dimensions normalized_shape. eps None:
// float32's epsilon, of float64 its own.
Tensor rms_norm(const Tensor& input, const Shape& normalized_shape, const Tensor& weight = {},
                std::optional<double> eps = {});
// s = input + residual, (rms_norm(s), s): one pass over memory.
std::tuple<Tensor, Tensor> add_rms_norm(const Tensor& input, const Tensor& residual, const Tensor& weight = {},
                                        double eps = 1e-6);
// rms_norm(input[B, ..., C]) * (1 + scale[B, C]) + shift[B, C].
Tensor rms_norm_modulate(const Tensor& input, const Tensor& scale, const Tensor& shift, const Tensor& weight = {},
                         double eps = 1e-6);

}  // namespace sf
