// Convolutions in int8: weights with a magnitude for each output channel, activations with one for each sample.
#pragma once
#include "scaffolding/core/tensor.h"
#include "scaffolding/ops/quantize/int8_rows.h"

namespace sf {

// conv2d(input[N, C, H, W], W, bias) with W [O, C, KH, KW] = weight[O, KH, KW, C] in int8 times scale (of each output
// channel, [O], or [] of all) times unit, as dequantize_int8 has it. Each sample becomes int8 too, its largest
// magnitude 127; sums are exact integers, and only then come scales and bias in float32: every instruction set gives
// the same bits. Zeros are padded. The result is channels-last. The gradient goes to input and bias, through the
// dequantised W. On CUDA a sample with a number that is not finite gives NaN, on the CPU it is an error.
Tensor conv2d_int8(const Tensor& input, const Tensor& weight, const Tensor& scale, const Tensor& bias = {},
                   const Shape& stride = {1}, const Shape& padding = {0}, const Shape& dilation = {1},
                   double unit = kInt8Unit);
// conv2d_int8(silu(group_norm(input, num_groups, norm_weight, norm_bias, eps)), ...) + residual, which has the result's
// shape or is [N, O, 1, 1]: the norm writes int8 itself. Undefined where no kernel does it in one: on CUDA, for an
// input that is not channels-last, where a gradient is wanted.
Tensor group_norm_silu_conv2d_int8(const Tensor& input, int64_t num_groups, const Tensor& norm_weight,
                                   const Tensor& norm_bias, double eps, const Tensor& weight, const Tensor& scale,
                                   const Tensor& bias = {}, const Tensor& residual = {}, const Shape& stride = {1},
                                   const Shape& padding = {0}, const Shape& dilation = {1}, double unit = kInt8Unit);
// weight[O, C, KH, KW] of a convolution as conv2d_int8 takes it, in int8, and float32 [O].
std::tuple<Tensor, Tensor> quantize_conv_int8(const Tensor& weight);
// And back, [O, C, KH, KW].
Tensor dequantize_conv_int8(const Tensor& weight, const Tensor& scale, std::optional<DType> dtype = {},
                            double unit = kInt8Unit);

}  // namespace sf
