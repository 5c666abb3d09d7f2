// Products of GGUF's blocks with activations that become int8 too, as ggml computes them: what linear_gguf's `dynamic`
// asks for, and the contract of the kernels.
#pragma once
#include "scaffolding/core/kernel.h"
#include "scaffolding/ops/quantize/gguf_format.h"
#include "scaffolding/ops/quantize/product_end.h"

namespace sf {

// c[m, n] = sum over blocks of scales[m] * (scale * sum of codes * q - minimum * sum of codes) + bias[n], with row n of
// w in blocks. codes: int8 [m, k], of magnitude 127 at most; scales: float32 [m, k / block]; sums: int16 [m, k / 16],
// of each 16 codes. bias (may be undefined) and c: float32. Everything is dense, and nothing empty.
// Sums within a block are integers; blocks follow each other, and nothing is fused: every kernel gives the same bits.
struct GgufInt8Product {
  TensorView codes, scales, sums, blocks, bias, c;
  GgufBlocks format = GgufBlocks::Q8_0;
};
extern KernelTable<GgufInt8Product> gguf_int8_product;

// linear(input, W, bias) in input's dtype where nothing is recorded; the arguments are linear_gguf's, which checked
// them. ValueError for numbers that are not finite, NotSupported on other devices than the CPU.
Tensor linear_gguf_in_int8(const Tensor& input, const Tensor& weight, const Tensor& bias, const GgufFormat& format);

}  // namespace sf
