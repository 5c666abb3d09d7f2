// The contract of matrix multiplication with the backends. Plain data; kernels never see the tape and never check.
#pragma once
#include "scaffolding/core/kernel.h"

namespace sf {

// Pointwise functions an output can pass through before it is stored.
enum class Activation : uint8_t { None, Relu, GeluErf, GeluTanh, Silu, QuickGelu };

// c[b, m, n] = act(alpha * sum_k a[b, m, k] * b[b, k, n] + bias[n]) + beta * c[b, m, n]
//
// a, b, c, pre are 3-D. Rows of a and b may have any strides; fast where one of the two matrix strides is 1, so
// transposed operands need no copy. A batch stride of 0 broadcasts.
// c and pre have stride 1 along n (any stride where n is 1).
// a, b and c do not overlap. k may be 0.
// dtypes: a and b equal; float32, bfloat16 and float16 accumulate in float32, and c may be any of the three; float64;
// integers wrap around and take no bias, activation or pre.
struct Gemm {
  TensorView a, b;
  TensorView bias;  // [n] stride 1, a's dtype or float32; undefined: none
  TensorView c;
  double alpha = 1, beta = 0;  // beta 0: the old bytes of c are never read
  Activation act = Activation::None;
  TensorView pre;          // gets the argument of act, for its gradient; same shape as c; undefined: not wanted
  uint64_t b_version = 0;  // version of b's bytes: a packed copy may be kept and reused while data and version agree.
                           // 0: never. See scaffolding/backend/cpu/packed_weights.h
};
extern KernelTable<Gemm> gemm;

}  // namespace sf
