// Weights and activations in float8 with scales, one for a tensor or one for each row: x is near q * scale.
// Products of two such matrices.
#pragma once
#include <tuple>

#include "scaffolding/core/tensor.h"

namespace sf {

// {q in float8, scale float32} of a floating tensor. dtype: float8_e4m3fn (the default) or float8_e5m2. scale is the
// largest magnitude over the format's largest number, 1 where all is 0: [] for the tensor or, with per_row, [..., 1]
// for each row of the last dimension.
std::tuple<Tensor, Tensor> quantize_fp8(const Tensor& input, std::optional<DType> dtype = {}, bool per_row = false);
// input * scale in dtype (float32).
Tensor dequantize_fp8(const Tensor& input, const Tensor& scale, std::optional<DType> dtype = {});

// (input[M, K] @ mat2[K, N]) * scale_a * scale_b + bias in out_dtype (bfloat16), as torch.nn.functional.scaled_mm:
// scale_a [] or [M, 1], scale_b [] or [1, N]. Float8 products of GPUs that have them (compute capability 8.9 and later)
// where K and N are multiples of 16 and mat2 is a weight's transpose; else both matrices are widened to float32, which
// gives the same numbers but for the order of sums. use_fast_accum lets such a GPU leave the sums of a 16-bit result in
// its matrix units, which keep 14 bits on Hopper. Off, as in PyTorch: it may cost K/32 * 2^-14 of the result.
Tensor scaled_mm(const Tensor& input, const Tensor& mat2, const Tensor& scale_a, const Tensor& scale_b,
                 const Tensor& bias = {}, std::optional<DType> out_dtype = {}, bool use_fast_accum = false);

// linear(input, W, bias) with a frozen W [N, K] = weight * scale, scale [] or [N, 1]; the gradient goes to input and
// bias. W is decoded while it is multiplied or, with dynamic, input is quantised too (float8_e4m3fn, by rows where the
// weight is) and scaled_mm multiplies, with use_fast_accum: what that costs is little beside what quantising did.
Tensor linear_fp8(const Tensor& input, const Tensor& weight, const Tensor& scale, const Tensor& bias = {},
                  bool dynamic = false);

}  // namespace sf
