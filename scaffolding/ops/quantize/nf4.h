// Weights in four bits: NormalFloat4 in blocks with a largest magnitude each, in bitsandbytes' layout, and its dynamic
// map of eight bits for those magnitudes.
#pragma once
#include <tuple>

#include "scaffolding/core/tensor.h"

namespace sf {

// {codes uint8 [ceil(n / 2), 1], absmax float32 [ceil(n / blocksize)]} of a floating tensor of n elements. blocksize: a
// power of two from 32 to 4096.
std::tuple<Tensor, Tensor> quantize_nf4(const Tensor& input, int64_t blocksize = 64);
// The tensor of that size and dtype (float32). absmax: float32, or the codes of quantize_blockwise(absmax - offset)
// with nested_absmax and offset [] beside.
Tensor dequantize_nf4(const Tensor& input, const Tensor& absmax, const Shape& size, std::optional<DType> dtype = {},
                      int64_t blocksize = 64, const Tensor& nested_absmax = {}, const Tensor& offset = {});
// {codes uint8 of input's shape, absmax float32 [ceil(n / blocksize)]} by the signed dynamic map.
std::tuple<Tensor, Tensor> quantize_blockwise(const Tensor& input, int64_t blocksize = 256);
Tensor dequantize_blockwise(const Tensor& input, const Tensor& absmax, std::optional<DType> dtype = {},
                            int64_t blocksize = 256);

// linear(input, W, bias) with W [N, K] = dequantize_nf4(weight, ...), decoded while it is multiplied. W is made in the
// backward pass, where the gradient goes to input and bias: weights in four bits do not learn.
Tensor linear_nf4(const Tensor& input, const Tensor& weight, const Tensor& absmax, const Tensor& nested_absmax,
                  const Tensor& offset, const Tensor& bias, int64_t out_features, int64_t blocksize = 64);

}  // namespace sf
