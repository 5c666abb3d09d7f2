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

}  // namespace sf
