// The contract between pointwise ops and backends. On the CPU kernels work on rows, contiguous memory of one dtype; the
// loop around them (strides, broadcasting, threads) is pointwise_loop.cpp's. Other devices get the whole views.
#pragma once
#include "scaffolding/core/kernel.h"

namespace sf {

struct PointwiseRow {
  void* out;  // dtype, or bool for comparisons and predicates
  // dtype each, n elements, contiguous; null where the expression does not read it,
  // or where p1 is the operand (floats of 16 or 32 bits, of tables that say so)
  const void* in[3];
  int64_t n;
  DType dtype;  // of the computation
  double p0, p1;
};

// out and each given input have one shape (broadcast dimensions have stride 0); any strides.
struct PointwiseViews {
  TensorView out;  // dtype, or bool for comparisons and predicates
  // dtype each; absent where the expression does not read it, or where p1 is the operand (floating dtypes)
  TensorView in[3];
  DType dtype;  // of the computation
  double p0, p1;
};

// The kernels of one pointwise op: rows for host memory, views for devices that bring their own loop.
struct PointwiseTable : KernelTable<PointwiseRow> {
  constexpr explicit PointwiseTable(const char* name, bool numbers = false)
      : KernelTable<PointwiseRow>(name), views(name), takes_numbers(numbers) {}
  KernelTable<PointwiseViews> views;
  bool takes_numbers;  // rows of two operands, one of which may be p1
};

#define SF_UNARY(name, ...) extern PointwiseTable name##_forward, name##_backward;
#define SF_UNARY_P SF_UNARY
#define SF_BINARY(name, ...) extern PointwiseTable name##_forward;
#define SF_BINARY_P SF_BINARY
#define SF_COMPARE(name, ...) extern PointwiseTable name##_forward;
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

extern PointwiseTable bitwise_not_forward;
extern PointwiseTable lerp_forward;  // in: start, end, weight

}  // namespace sf
