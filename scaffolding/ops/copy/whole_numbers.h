// Rows of floats that become whole numbers.
#pragma once
#include "scaffolding/core/kernel.h"

namespace sf {

// to[i] = from[i] cut off towards zero, then to the bits of its dtype; NaN is 0, and what 64 bits do not hold is the
// largest or smallest of their numbers first. from_type: float32, bfloat16 or float16; to_type: integers.
struct WholeNumbers {
  void* to;
  const void* from;
  int64_t n;
  DType to_type, from_type;
};
extern KernelTable<WholeNumbers> whole_numbers;

// That of the best instruction set. A piece of others' work: it is no call of its own in traces.
using WholeNumbersFn = void (*)(const WholeNumbers&);
WholeNumbersFn whole_numbers_function();

}  // namespace sf
