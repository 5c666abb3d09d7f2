// Vectors of numbers to codes of int8.
// Included only by *.cpu.cpp files; everything lives in namespace sf::SF_ISA.
#pragma once
#include <cstring>

#include "scaffolding/backend/cpu/simd.h"
#include "scaffolding/ops/quantize/int8_kernel.h"

namespace sf {
namespace SF_ISA {

// What numbers whose largest magnitude is this are multiplied by; 0: all codes are 0.
SF_INLINE float code_factor(float largest) {
  const float by = largest > 0 ? 127.f / largest : 0.f;
  return __builtin_isfinite(by) ? by : 0.f;
}

// The largest of n > 0 numbers; NaN where one is NaN.
SF_INLINE float largest_of_all(const float* x, int64_t n) {
  float largest = x[0];
  for (int64_t i = 1; i < n; ++i)
    if (!(x[i] <= largest)) largest = x[i] > largest ? x[i] : __builtin_nanf("");
  return largest;
}

// The nearest whole numbers of a vector, half to even.
SF_INLINE void store_codes(int8_t* to, vf v) {
#if defined(__AVX512F__)
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtepi32_epi8(_mm512_cvtps_epi32((__m512)v.v)));
#elif defined(__AVX2__)
  const __m256i whole = _mm256_cvtps_epi32((__m256)v.v);
  const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(whole), _mm256_extracti128_si256(whole, 1));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(to), _mm_packs_epi16(words, words));
#else
  for (int i = 0; i < kLanes; ++i) to[i] = int8_t(int32_t((v[i] + 12582912.f) - 12582912.f));
#endif
}
SF_INLINE void store_codes(int8_t* to, vf v, int n) {
  if (n == kLanes) return store_codes(to, v);
  int8_t some[kLanes];
  store_codes(some, v);
  std::memcpy(to, some, size_t(n));
}

}  // namespace SF_ISA
}  // namespace sf
