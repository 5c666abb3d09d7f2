// The first k elements of each row in sorted order, and where they were. The dimension is the last of each view.
#pragma once
#include "scaffolding/core/kernel.h"

namespace sf {

struct Sort {
  TensorView values;   // [.., k], in's dtype; may be absent
  TensorView indices;  // [.., k], int64
  TensorView in;       // [.., n], n < 2^32
  bool descending = false;
};
extern KernelTable<Sort> sort_kernel;

// Where the elements stand that have the given ranks in each row's order; of equal elements the first has the lower
// rank. The dimension is the last of each view.
struct Rank {
  TensorView indices;  // [.., k], int64
  TensorView ranks;    // [.., k], int64 in [0, n)
  TensorView in;       // [.., n], 0 < n < 2^32
};
extern KernelTable<Rank> rank_kernel;

}  // namespace sf
