// Every element of dst becomes value (converted to dst's dtype). Any strides.
#pragma once
#include "scaffolding/core/kernel.h"

namespace sf {
struct Fill {
  TensorView dst;
  double real;      // the value when dst is floating
  int64_t integer;  // the value otherwise
};
extern KernelTable<Fill> fill_kernel;
}  // namespace sf
