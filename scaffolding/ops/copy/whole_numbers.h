// Rows of floats that become whole numbers.
#pragma once
#include "scaffolding/ops/copy/piece.h"

namespace sf {

// v cut off towards zero, then to the bits of D; NaN is 0, and what 64 bits do not hold is the largest or smallest of
// their numbers first.
template <class D, class S> SF_INLINE D whole_number(S v) {
  return D(v != v ? 0 : v >= S(0x1p63) ? INT64_MAX : v <= S(-0x1p63) ? INT64_MIN : int64_t(v));
}

// to[i] = whole_number(from[i]). from_type: float32, bfloat16 or float16; to_type: integers.
struct WholeNumbers {
  void* to;
  const void* from;
  int64_t n;
  DType to_type, from_type;
};
extern KernelTable<WholeNumbers> whole_numbers;

}  // namespace sf
