// out[i] = reduction of in[i, :]; both dense, one dtype.
#pragma once
#include "scaffolding/core/kernel.h"

namespace sf {
struct Reduce { TensorView out, in; };
extern KernelTable<Reduce> sum_kernel;
}  // namespace sf
