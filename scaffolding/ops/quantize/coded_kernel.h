// The contract of products with coded weights, and what the ops above it share.
#pragma once
#include <functional>

#include "scaffolding/core/tensor.h"
#include "scaffolding/ops/matmul/kernel.h"
#include "scaffolding/ops/quantize/product_end.h"

namespace sf {

enum class CodedFormat : uint8_t { Nf4, Fp4, Int8, E4m3, E5m2, Half, BFloat };

// c[m, n] = act(sum_k a[m, k] * w[n, k] + bias[n] + residual[m, n]), w decoded on the way (a kernel may round it
// to a's dtype), sums in float32. a, c, residual: float32, bfloat16 or float16, one dtype, last stride 1. bias: [n],
// a's dtype or float32. bias and residual may be undefined.
//   Nf4, Fp4: codes[ceil(n k / 2)], w = table[code] * its block's magnitude: scales, nested, offset and block are
//             BlockDequantize's absmax, nested, offset and block
//   Int8:     codes[n, k] int8, w = code * scales[n] * unit
//   E4m3, E5m2: codes[n, k] float8, w = code * scale; scales [n] or, for all rows, [1]
//   Half, BFloat: codes[n, k] float16 or bfloat16, which are w
struct CodedProduct {
  TensorView a, bias, c, residual;
  TensorView codes, scales, nested, offset;
  CodedFormat format = CodedFormat::Nf4;
  int64_t block = 64;
  float unit = 1;
  Activation act = Activation::None;
};
extern KernelTable<CodedProduct> coded_product;

// Whether there is a kernel, which has been called then.
bool coded_product_into(const CodedProduct& p);

// That input [..., K] and bias fit a coded weight [N, K], with `op` in the errors.
void check_coded_linear(const char* op, const Tensor& input, const Tensor& weight, const Tensor& bias);
// act(linear(input, W, bias) + residual) with W [n, K] that is frozen: by `on_the_way`, which fills in what its weight
// is, where that can, else by `whole`, W in input's dtype. The backward pass takes `whole`.
Tensor linear_of_codes(const char* op, const Tensor& input, const Tensor& bias, int64_t n,
                       const std::function<Tensor()>& whole, const std::function<bool(CodedProduct&)>& on_the_way,
                       const ProductEnd& end = {});
// linear_fp8 and linear_int8 with what follows.
Tensor linear_fp8_with(const Tensor& input, const Tensor& weight, const Tensor& scale, const Tensor& bias, bool dynamic,
                       const ProductEnd& end);
Tensor linear_int8_with(const Tensor& input, const Tensor& weight, const Tensor& scale, const Tensor& bias, double unit,
                        bool dynamic, const ProductEnd& end);

}  // namespace sf
