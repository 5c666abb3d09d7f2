// The contracts of searchsorted and of counting with backends.
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

// The least and the greatest of in, which has some; and then how often each number is in it.
struct CountNumbers {
  TensorView counts;  // [bins], int64, increased: in is in [0, bins). Absent: least and most are found instead
  TensorView in;      // [n], int64, contiguous
  int64_t *least, *most;
};
extern KernelTable<CountNumbers> count_numbers;

// counts[b] += how many of in are in part b of `bins` equal ones of [from, to]; the last has `to` too.
struct CountParts {
  TensorView counts;    // [bins], int64
  TensorView in;        // [n], float32 or float64, contiguous
  TensorView from, to;  // numbers, in's dtype, from < to
};
extern KernelTable<CountParts> count_parts;

}  // namespace sf
