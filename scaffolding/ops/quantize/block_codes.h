// What the ops of coded blocks share (nf4.h, fp4.h): codes, the magnitudes of their blocks, and what is made of them.
#pragma once
#include "scaffolding/core/tensor.h"
#include "scaffolding/ops/quantize/kernel.h"
#include "scaffolding/ops/quantize/product_end.h"

namespace sf {

// A tensor in codes. absmax: float32, or bytes of the dynamic map with nested and offset beside.
struct BlockCodes {
  Tensor codes, absmax, nested, offset;
  BlockFormat format = BlockFormat::Nf4;
  int64_t block = 64;
};

std::tuple<Tensor, Tensor> quantize_blocks(const char* op, const Tensor& input, BlockFormat format, int64_t block);
Tensor dequantize_blocks(const char* op, const BlockCodes& w, const Shape& size, DType dtype);
// activation(linear(input, W, bias) + residual) with W [out_features, K] in codes of four bits, which are decoded while
// they are multiplied, with sums in float32; on CUDA where K is no multiple of 16, W is made for the call. The gradient
// goes to input and bias.
Tensor linear_of_blocks(const char* op, const Tensor& input, const BlockCodes& w, const Tensor& bias,
                        int64_t out_features, const ProductEnd& end = {});

}  // namespace sf
