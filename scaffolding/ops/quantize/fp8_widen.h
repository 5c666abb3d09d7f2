// float8 to wider numbers on the CPU. Either format becomes a float16 by a shift, denormals included, which the
// processor converts: e5m2 is a float16's upper half, e4m3 one whose exponent counts from eight less.
// Included only by *.cpu.cpp files; everything lives in namespace sf::SF_ISA.
#pragma once
#include "scaffolding/backend/cpu/simd_rows.h"

namespace sf {
namespace SF_ISA {

// kLanes numbers.
template <class Q> SF_INLINE vf widen(const uint8_t* from) {
  [[maybe_unused]] constexpr bool kFour = std::is_same_v<Q, Float8E4M3>;
#if defined(__AVX512F__) || defined(__F16C__)
#if defined(__AVX512F__)
  const __m256i bytes = _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  if constexpr (!kFour) return (vf_raw)_mm512_cvtph_ps(_mm256_slli_epi16(bytes, 8));
  const __m256i sign = _mm256_slli_epi16(_mm256_and_si256(bytes, _mm256_set1_epi16(0x80)), 8),
                size = _mm256_slli_epi16(_mm256_and_si256(bytes, _mm256_set1_epi16(0x7f)), 7);
  const vf x = (vf_raw)_mm512_cvtph_ps(_mm256_or_si256(sign, size));
#else
  const __m128i bytes = _mm_cvtepu8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
  if constexpr (!kFour) return (vf_raw)_mm256_cvtph_ps(_mm_slli_epi16(bytes, 8));
  const __m128i sign = _mm_slli_epi16(_mm_and_si128(bytes, _mm_set1_epi16(0x80)), 8),
                size = _mm_slli_epi16(_mm_and_si128(bytes, _mm_set1_epi16(0x7f)), 7);
  const vf x = (vf_raw)_mm256_cvtph_ps(_mm_or_si128(sign, size));
#endif
  // all ones but the sign: e4m3fn's NaN, which a float16 would read as 1.875
  return select(abs(x) == vf(1.875f), from_bits(vi_raw{} + 0x7fc00000), x * vf(256.f));
#else
  vf x;
  for (int i = 0; i < kLanes; ++i) {
    Q q;
    std::memcpy(&q, from + i, 1);
    x.v[i] = to_float(q);
  }
  return x;
#endif
}

}  // namespace SF_ISA
}  // namespace sf
