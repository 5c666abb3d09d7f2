// The machine's own limits, measured by loops that do nothing else: multiply-adds per instruction set, and memcpy.
#pragma once
#include "scaffolding/core/kernel.h"

namespace sf::bench {

// `rounds` times 12 or 24 independent multiply-adds on full vectors, on the calling thread; flop receives their number.
struct Peak {
  DType dtype = kFloat32;  // kBFloat16: products of bf16 pairs added to float32, where the processor has them
  int64_t rounds = 0;
  double* flop = nullptr;
};
extern KernelTable<Peak> peak_kernel;

}  // namespace sf::bench
