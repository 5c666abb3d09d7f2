// The gradient of a bias from channels-last memory.
// Included only by *.cpu.cpp files; everything lives in namespace sf::SF_ISA.
#pragma once
#include "scaffolding/core/parallel.h"
#include "scaffolding/ops/matmul/packed_gemm.h"

namespace sf {
namespace SF_ISA {

// to[c] = sum over pixels of dy[pixel][c], for whole vectors of channels.
inline void sum_over_pixels(const float* dy, int64_t pixels, int64_t channels, float* to) {
  parallel_for(channels / kLanes, max64(1, 32768 / max64(1, pixels)), [&](int64_t begin, int64_t end) {
    for (int64_t c = begin * kLanes; c < end * kLanes; c += kLanes) {
      vf sum[4] = {vf(0.f), vf(0.f), vf(0.f), vf(0.f)};
      for (int64_t p = 0; p < pixels; ++p) sum[p & 3] += load(dy + p * channels + c);
      store(to + c, sum[0] + sum[1] + (sum[2] + sum[3]));
    }
  });
}

}  // namespace SF_ISA
}  // namespace sf
