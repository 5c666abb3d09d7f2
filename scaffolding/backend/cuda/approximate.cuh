// The GPU's approximate functions of one instruction each, for results that are rounded to 16 bits. Relative errors at most 2^-22 (PTX ISA, ex2.approx
// and rcp.approx); numbers below 2^-126 count as zero.
#pragma once
#include <cuda_runtime.h>

namespace sf::cuda {

__device__ inline float approximate_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ inline float approximate_reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace sf::cuda
