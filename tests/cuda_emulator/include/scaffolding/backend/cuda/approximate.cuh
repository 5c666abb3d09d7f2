// scaffolding/backend/cuda/approximate.cuh for the C++ compiler: wrong by as much as the PTX ISA allows, numbers below 2^-126 zero.
#pragma once
#include <cuda_runtime.h>

namespace sf::cuda {

inline float flushed(float x) { return fabsf(x) < 0x1p-126f ? copysignf(0.f, x) : x; }
inline float approximate_exp2(float x) { return flushed(exp2f(flushed(x)) * (1 - 0x1p-22f)); }
inline float approximate_reciprocal(float x) { return flushed(1 / flushed(x) * (1 + 0x1p-23f)); }

}  // namespace sf::cuda
