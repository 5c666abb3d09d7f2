// out = condition ? a : b over one common shape, any strides; a and b have out's dtype.
#pragma once
#include "scaffolding/core/kernel.h"

namespace sf {
struct Where {
  TensorView out, condition, a, b;
};
extern KernelTable<Where> where_kernel;
}  // namespace sf
