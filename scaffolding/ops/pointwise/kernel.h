// The contract between pointwise ops and the CPU: kernels work on rows, contiguous memory of one dtype.
// The loop around them (strides, broadcasting, threads) is pointwise_loop.cpp's.
#pragma once
#include "scaffolding/core/kernel.h"

namespace sf {

struct PointwiseRow {
  void* out;          // dtype, or bool for comparisons and predicates
  const void* in[3];  // dtype each, n elements, contiguous; null where the expression does not read it
  int64_t n;
  DType dtype;  // of the computation
  double p0, p1;
};

#define SF_UNARY(name, ...) extern KernelTable<PointwiseRow> name##_forward, name##_backward;
#define SF_UNARY_P SF_UNARY
#define SF_BINARY(name, ...) extern KernelTable<PointwiseRow> name##_forward;
#define SF_BINARY_P SF_BINARY
#define SF_COMPARE(name, ...) extern KernelTable<PointwiseRow> name##_forward;
#define SF_PREDICATE SF_COMPARE
#define SF_BITWISE SF_COMPARE
#include "scaffolding/ops/pointwise/binary.def"
#include "scaffolding/ops/pointwise/bitwise.def"
#include "scaffolding/ops/pointwise/compare.def"
#include "scaffolding/ops/pointwise/predicate.def"
#include "scaffolding/ops/pointwise/unary.def"
#undef SF_UNARY
#undef SF_UNARY_P
#undef SF_BINARY
#undef SF_BINARY_P
#undef SF_COMPARE
#undef SF_PREDICATE
#undef SF_BITWISE

extern KernelTable<PointwiseRow> bitwise_not_forward;
extern KernelTable<PointwiseRow> lerp_forward;  // in: start, end, weight

}  // namespace sf
