// bitsandbytes' FP4: sixteen numbers of a sign, two bits of exponent and one of mantissa, in blocks as NF4's (nf4.h).
#pragma once
#include "scaffolding/core/tensor.h"

namespace sf {

// {codes uint8 [ceil(n / 2), 1], absmax float32 [ceil(n / blocksize)]}, as quantize_nf4.
std::tuple<Tensor, Tensor> quantize_fp4(const Tensor& input, int64_t blocksize = 64);
Tensor dequantize_fp4(const Tensor& input, const Tensor& absmax, const Shape& size, std::optional<DType> dtype = {},
                      int64_t blocksize = 64, const Tensor& nested_absmax = {}, const Tensor& offset = {});
// linear(input, W, bias) with W [out_features, K] in FP4, as linear_nf4.
Tensor linear_fp4(const Tensor& input, const Tensor& weight, const Tensor& absmax, const Tensor& nested_absmax,
                  const Tensor& offset, const Tensor& bias, int64_t out_features, int64_t blocksize = 64);

}  // namespace sf
