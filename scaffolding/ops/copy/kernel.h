// dst[i] = convert(src[i]) over one common shape; any strides, any pair of dtypes, both on one device.
// dst has no two elements in one place.
#pragma once
#include "scaffolding/core/kernel.h"

namespace sf {
struct Copy {
  TensorView dst, src;
};
extern KernelTable<Copy> copy_kernel;
}  // namespace sf
