// Group norm as a gain and an offset for each channel.
// Included only by *.cpu.cpp files; everything lives in namespace sf::SF_ISA.
#pragma once
#include "scaffolding/backend/cpu/simd.h"

namespace sf {
namespace SF_ISA {

// gain[c] = rstd weight, offset[c] = bias - mean rstd weight for item n, both times `scale`.
template <class A>
static void fold_item(const A* mean, const A* rstd, const A* weight, const A* bias, int64_t C, int64_t G, double scale,
                      A* gain, A* offset) {
  for (int64_t g = 0, c = 0; g < G; ++g)
    for (int64_t end = c + C / G; c < end; ++c) {
      double a = double(rstd[g]) * double(weight[c]);
      gain[c] = A(scale * a);
      offset[c] = A(scale * (double(bias[c]) - double(mean[g]) * a));
    }
}

}  // namespace SF_ISA
}  // namespace sf
