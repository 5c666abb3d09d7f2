// Transposed convolutions: input[N, C, *] with weight[C, O / groups, *kernel]; the gradient of a convolution as an op.
#pragma once
#include "scaffolding/core/tensor.h"

namespace sf {

Tensor conv_transpose1d(const Tensor& input, const Tensor& weight, const Tensor& bias = {}, const Shape& stride = {1},
                        const Shape& padding = {0}, const Shape& output_padding = {0}, int64_t groups = 1,
                        const Shape& dilation = {1});
Tensor conv_transpose2d(const Tensor& input, const Tensor& weight, const Tensor& bias = {}, const Shape& stride = {1},
                        const Shape& padding = {0}, const Shape& output_padding = {0}, int64_t groups = 1,
                        const Shape& dilation = {1});
Tensor conv_transpose3d(const Tensor& input, const Tensor& weight, const Tensor& bias = {}, const Shape& stride = {1},
                        const Shape& padding = {0}, const Shape& output_padding = {0}, int64_t groups = 1,
                        const Shape& dilation = {1});

}  // namespace sf
