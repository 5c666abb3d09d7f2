// Lines of a tile (64 bytes) in a vector, on their way into packed operands. Included only by *.amx.cpp files;
// everything lives in namespace sf::SF_ISA and inlines.
#pragma once
#include "scaffolding/backend/cpu/simd.h"

namespace sf {
namespace SF_ISA {

typedef uint32_t TileLine __attribute__((vector_size(64)));
typedef uint16_t HalfLine __attribute__((vector_size(32)));

// The first n of 32 values, the rest zero.
SF_INLINE TileLine load_line(const BFloat16* from, int64_t n) {
#if defined(__AVX512BW__)
  const __mmask32 values = n >= 32 ? ~__mmask32(0) : (__mmask32(1) << n) - 1;
  return (TileLine)_mm512_maskz_loadu_epi16(values, from);
#else
  TileLine line{};
  std::memcpy(&line, from, size_t(n >= 32 ? 64 : 2 * n));
  return line;
#endif
}
SF_INLINE HalfLine load_half(const BFloat16* from, int64_t n) {
#if defined(__AVX512BW__)
  return (HalfLine)_mm256_maskz_loadu_epi16(n >= 16 ? __mmask16(-1) : __mmask16((1u << n) - 1), from);
#else
  HalfLine line{};
  std::memcpy(&line, from, size_t(n >= 16 ? 32 : 2 * n));
  return line;
#endif
}
SF_INLINE TileLine join_pairs(HalfLine even, HalfLine odd) {
  return __builtin_convertvector(even, TileLine) | (__builtin_convertvector(odd, TileLine) << 16);
}

}  // namespace SF_ISA
}  // namespace sf
