// The contracts of quantised storage with the backends. All tensors are dense.
#pragma once
#include "scaffolding/core/kernel.h"

namespace sf {

// x[n] float32 in blocks: absmax[ceil(n / block)] float32 is each block's largest magnitude, and what x / absmax is
// nearest to is stored as a code. Nf4, Fp4: two codes to a byte, the earlier one in the high bits, codes[ceil(n / 2)];
// the last half byte of an odd n is the code of 0. Dynamic: a byte each.
enum class BlockFormat : uint8_t { Nf4, Dynamic, Fp4 };
constexpr bool has_nibbles(BlockFormat f) { return f != BlockFormat::Dynamic; }
struct BlockQuantize {
  TensorView x, codes, absmax;
  int64_t block = 64;  // elements, a power of two of at least 32
  BlockFormat format = BlockFormat::Nf4;
};
extern KernelTable<BlockQuantize> block_quantize;

// y[n] = table[code] * absmax, y of float32, bfloat16 or float16. absmax: float32, or the bytes of a Dynamic
// quantisation in blocks of 256, whose own absmax is `nested`: then table[byte] * nested + offset[1].
struct BlockDequantize {
  TensorView codes, absmax, nested, offset, y;
  int64_t block = 64;
  BlockFormat format = BlockFormat::Nf4;
};
extern KernelTable<BlockDequantize> block_dequantize;
inline constexpr int64_t kNestedBlock = 256;

// q[r, c] = x[r, c] / scale[r], saturated, to float8. x of any floating dtype but float8. scale: [rows] or, for all
// rows, [1], float32. With measure the kernel sets it: the largest magnitude of what it is for, over the format's
// largest number; 1 where all is 0.
struct Fp8Quantize {
  TensorView x, q, scale;
  bool measure = true;
};
extern KernelTable<Fp8Quantize> fp8_quantize;

// y[r, c] = q[r, c] * scale[r] of float32, bfloat16 or float16; scale [rows] or [1].
struct Fp8Dequantize {
  TensorView q, scale, y;
};
extern KernelTable<Fp8Dequantize> fp8_dequantize;

// c[m, n] = (a[m, k] b[k, n]) * scale_a * scale_b + bias[n] + residual[m, n]. a, b: float8; b with stride 1 along k.
// scale_a [m] or [1], scale_b [n] or [1], float32. residual: undefined, or of c's dtype and sizes,
// dense and other memory. fast_accumulation: sums into 16 bits may stay in the matrix units' own, 14 bits of a Hopper.
struct ScaledProduct {
  TensorView a, b, scale_a, scale_b, bias, c, residual;
  bool fast_accumulation = false;
};
extern KernelTable<ScaledProduct> scaled_product;

// layer_norm of x[R, C] with weight and bias [C], each optional, and hidden * gelu(gate) of [R, C] with last stride 1,
// quantised by rows to q[R, C] float8_e4m3fn with scale[R], as Fp8Quantize measures it.
struct LayerNormFp8 {
  TensorView x, weight, bias;
  double eps = 1e-5;
  TensorView q, scale;
};
extern KernelTable<LayerNormFp8> layer_norm_fp8_kernel;
struct GegluFp8 {
  TensorView hidden, gate, q, scale;
};
extern KernelTable<GegluFp8> geglu_fp8_kernel;

}  // namespace sf
