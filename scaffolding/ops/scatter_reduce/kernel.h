// The contract of scatter_reduce with backends: products and extrema. Sums are scatter_add's.
#pragma once
#include "scaffolding/core/kernel.h"

namespace sf {

// out[i with index[i] in place of i[dim]] becomes its product with src[i], or the larger or smaller of the two, in the
// order of i[dim]. NaN wins. index (int64, within out's size) and src have one shape, out one as large but in dim.
struct ScatterReduce {
  enum What : uint8_t { Prod, Max, Min };
  TensorView out, index, src;
  int dim;
  What what;
};
extern KernelTable<ScatterReduce> scatter_reduce_kernel;

}  // namespace sf
