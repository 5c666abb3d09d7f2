// The contracts of weights in GGUF's blocks with the backends. Blocks are dense bytes.
#pragma once
#include "scaffolding/core/kernel.h"
#include "scaffolding/ops/matmul/kernel.h"
#include "scaffolding/ops/quantize/gguf_blocks.h"

namespace sf {

// y[n] of float32, bfloat16 or float16 from blocks of a GGUF format (gguf_decode.h), which hold exactly n numbers.
struct GgufDecode {
  TensorView blocks, y;
  GgufBlocks format = GgufBlocks::Q8_0;
};
extern KernelTable<GgufDecode> gguf_decode;

// c[m, n] = act(sum_k a[m, k] * w[n, k] + bias[n] + residual[m, n]), with row n of w in blocks: blocks[n, bytes].
// a, c, residual: float32, bfloat16 or float16, one dtype, last stride 1; sums in float32. A kernel may round w to a's
// dtype. bias: [n], a's dtype or float32. bias and residual may be undefined.
struct GgufProduct {
  TensorView a, blocks, bias, residual, c;
  GgufBlocks format = GgufBlocks::Q8_0;
  Activation act = Activation::None;
};
extern KernelTable<GgufProduct> gguf_product;

}  // namespace sf
