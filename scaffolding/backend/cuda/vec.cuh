// Vectors of elements that move in one instruction (up to 16 bytes),
// and conversions between storage and arithmetic types.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "scaffolding/core/dtype.h"

namespace sf::cuda {

template <class T, int V> struct alignas(sizeof(T) * V) Vec { T v[V]; };

// Elements of these types that a thread takes at once: 16 bytes of the largest, at most 8 so that registers suffice.
template <class... T> constexpr int lanes_for() {
  size_t largest = 1;
  ((largest = sizeof(T) > largest ? sizeof(T) : largest), ...);
  size_t n = 16 / largest;
  return n > 8 ? 8 : int(n);
}

// 16-bit floats compute in float, by the conversion instructions of the GPU; other types in themselves.
__device__ inline float widen(Half x) { return __half2float(__ushort_as_half(x.bits)); }
__device__ inline float widen(BFloat16 x) { return __bfloat162float(__ushort_as_bfloat16(x.bits)); }
template <class T> __device__ inline T widen(T x) { return x; }

template <class T> __device__ inline T narrow(float x) { return T(x); }
template <> __device__ inline Half narrow<Half>(float x) { return {__half_as_ushort(__float2half_rn(x))}; }
template <> __device__ inline BFloat16 narrow<BFloat16>(float x) {
  return {__bfloat16_as_ushort(__float2bfloat16_rn(x))};
}

}  // namespace sf::cuda
