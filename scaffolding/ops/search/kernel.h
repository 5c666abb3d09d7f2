// The contract of searchsorted with backends.
#pragma once
#include "scaffolding/core/kernel.h"

namespace sf {

// out[r, i] = how many places k of the sequence, in order, come before values[r, i]: sequence[r, sorter[r, k]] is
// below it, or with `right` not above it. All are contiguous; a sequence of one row serves every r. NaN is above every
// number.
struct SearchSorted {
  TensorView out;       // [rows, m], int64
  TensorView values;    // [rows, m]
  TensorView sequence;  // [rows or 1, n], values' dtype
  TensorView sorter;    // sequence's shape, int64 in [0, n); may be absent
  bool right = false;
};
extern KernelTable<SearchSorted> searchsorted_kernel;

}  // namespace sf
