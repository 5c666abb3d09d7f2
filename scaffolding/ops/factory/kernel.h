// Filling new tensors: the contracts with backends.
#pragma once
#include "scaffolding/core/kernel.h"

namespace sf {
// Every element of dst becomes value (converted to dst's dtype). Any strides.
struct Fill {
  TensorView dst;
  double real;      // the value when dst is floating
  int64_t integer;  // the value otherwise
};
extern KernelTable<Fill> fill_kernel;

// Numbers at equal distances: start + i * step, and from the index from_end on (linspace) last - (count - 1 -
// i) * step.
struct RangeFill {
  double* reals = nullptr;      // [count], or
  int64_t* integers = nullptr;  // [count]: with whole first + i * stride, else the same numbers without their fractions
  Device device;
  int64_t count = 0, from_end = 0;  // 0: never
  double start = 0, step = 0, last = 0;
  bool whole = false;
  int64_t first = 0, stride = 0;
};
extern KernelTable<RangeFill> range_fill;
}  // namespace sf
