// Weights in int8 with a magnitude for each row, as bitsandbytes' Linear8bitLt has them (its SCB), and other programs'
// with a scale for each row or one for all.
#pragma once
#include "scaffolding/core/tensor.h"

namespace sf {

// What a code of int8 is of its row's largest magnitude, in float32: bitsandbytes' constant.
inline constexpr double kInt8Unit = 0.007874015718698502;

// {int8 of input's shape, float32 [rows]} of a floating input[..., K]: each row's largest magnitude becomes 127, the
// rest is rounded to the nearest, half to even. ValueError for numbers that are not finite; on CUDA, which nobody waits
// for, such a row's codes are 0 and its magnitude is not finite, so that products with it are NaN.
std::tuple<Tensor, Tensor> quantize_int8(const Tensor& input);
// input * scale * unit in another dtype (float32). scale: of each row, [rows], or of all, [].
Tensor dequantize_int8(const Tensor& input, const Tensor& scale, std::optional<DType> dtype = {},
                       double unit = kInt8Unit);

// linear(input, W, bias) + residual with W [N, K] = dequantize_int8(weight, scale, ...), decoded while multiplied.
// dynamic: input's rows become int8 too, the products' sums are exact integers, and only then come scales and bias in
// float32: every instruction set and CUDA give the same bits. The gradient goes to input and bias, through the
// dequantised W.
Tensor linear_int8(const Tensor& input, const Tensor& weight, const Tensor& scale, const Tensor& bias = {},
                   double unit = kInt8Unit, bool dynamic = false, const Tensor& residual = {});

}  // namespace sf
