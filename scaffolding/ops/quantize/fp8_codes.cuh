// float8 codes on CUDA: by the GPU's conversions, two at a time, from compute capability 8.9 on (PTX ISA, "cvt"), else
// as the CPU makes them; and the division by a scale, which is the same for a row.
#pragma once
#include "scaffolding/backend/cuda/vec.cuh"

namespace sf::cuda {

template <class Q> struct Float8;
template <> struct Float8<Float8E4M3> { static constexpr float most = 448; };
template <> struct Float8<Float8E5M2> { static constexpr float most = 57344; };

// Saturated; NaN stays NaN.
template <class Q> __device__ inline Q code_of(float x) {
  constexpr float most = Float8<Q>::most;
  return from_float<Q>(x > most ? most : x < -most ? -most : x);
}

// Of two, the first one in the low byte.
template <class Q> __device__ inline uint16_t two_codes(float first, float second) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  uint16_t two;
  if constexpr (std::is_same_v<Q, Float8E4M3>)
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(two) : "f"(second), "f"(first));
  else asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(two) : "f"(second), "f"(first));
  return two;
#else
  return uint16_t(code_of<Q>(first).bits | code_of<Q>(second).bits << 8);
#endif
}
template <class Q, int V> __device__ inline Vec<Q, V> codes_of(const float (&x)[V]) {
  Vec<Q, V> codes;
#pragma unroll
  for (int i = 0; i < V; i += 2) {
    const uint16_t two = two_codes<Q>(x[i], i + 1 < V ? x[i + 1] : 0.f);
    codes.v[i].bits = uint8_t(two);
    if (i + 1 < V) codes.v[i + 1].bits = uint8_t(two >> 8);
  }
  return codes;
}

// float16 holds every float8.
template <class Q> __device__ inline void two_values(uint8_t first, uint8_t second, float& x, float& y) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  const uint16_t two = uint16_t(first | second << 8);
  uint32_t halves;
  if constexpr (std::is_same_v<Q, Float8E4M3>) asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(two));
  else asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(halves) : "h"(two));
  x = widen(Half{uint16_t(halves)}), y = widen(Half{uint16_t(halves >> 16)});
#else
  x = to_float(Q{first}), y = to_float(Q{second});
#endif
}
template <class Q, int V> __device__ inline void values_of(const Vec<Q, V>& codes, float (&x)[V]) {
#pragma unroll
  for (int i = 0; i < V; i += 2) {
    float none;
    two_values<Q>(codes.v[i].bits, i + 1 < V ? codes.v[i + 1].bits : uint8_t(0), x[i], i + 1 < V ? x[i + 1] : none);
  }
}

// The code that a cast gives (core/half.h): beyond the largest NaN, or infinity where there is one; a sign is kept.
template <class Q> __device__ inline Q cast_to(float x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  constexpr bool kInfinite = std::is_same_v<Q, Float8E5M2>;
  const uint32_t bits = __float_as_uint(x), size = bits & 0x7fffffffu;
  uint32_t code = two_codes<Q>(x, 0.f);
  if (kInfinite ? size >= 0x47700000u : size > 0x43e80000u)  // 61440; 464
    code = (bits >> 24 & 0x80u) | (kInfinite && size <= 0x7f800000u ? 0x7cu : 0x7fu);
  return {uint8_t(code)};
#else
  return from_float<Q>(x);
#endif
}
template <class Q> __device__ inline float value_of(Q code) {
  float value, none;
  two_values<Q>(code.bits, 0, value, none);
  return value;
}

// x / scale for many x: the bits of the division where they matter, which are those of quotients that a code has
// (Markstein, 1990: one step from the rounded reciprocal rounds as division does). The remainder has the sign that lets
// a negative zero stay one.
class DividedBy {
 public:
  __device__ explicit DividedBy(float scale)
      : scale_(scale), inverse_(1.f / scale), divides_(!(scale > 0x1p-100f && scale < 0x1p100f)) {}
  __device__ float operator()(float x) const {
    if (divides_) return x / scale_;
    const float q = x * inverse_;
    return fabsf(q) < 0x1p17f ? fmaf(fmaf(q, scale_, -x), -inverse_, q) : q;  // beyond every code: saturated
  }

 private:
  float scale_, inverse_;
  bool divides_;
};

}  // namespace sf::cuda
