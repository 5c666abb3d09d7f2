// The contract of int_mm with backends. Plain data; kernels never check.
#pragma once
#include "scaffolding/core/kernel.h"

namespace sf {

// c[m, n] = sum over k of a[m, k] * b[k, n], modulo 2^32. a and b are int8 with any strides, fast where one of the two
// is 1; c is int32 and contiguous, and not empty. k may be 0.
struct IntMm {
  TensorView a, b, c;
};
extern KernelTable<IntMm> int_mm_kernel;

}  // namespace sf
