// Bytes of int8 matrices in vectors, as products want them: fours along k of neighbouring rows or columns.
// Included only by *.cpu.cpp and *.amx.cpp files; everything lives in namespace sf::SF_ISA.
#pragma once
#include "scaffolding/ops/int_mm/kernel.h"
#include "scaffolding/ops/matmul/packed_gemm.h"

namespace sf {
namespace SF_ISA {

typedef uint32_t Fours __attribute__((vector_size(kVecBytes)));  // a lane: four bytes, the first in its low bits
typedef uint8_t LaneBytes __attribute__((vector_size(kLanes)));  // a byte for each lane

// The first n bytes, the rest zero; nothing past them is read.
SF_INLINE Fours load_line(const int8_t* from, int64_t n) {
#if defined(__AVX512BW__)
  return (Fours)_mm512_maskz_loadu_epi8(n >= 64 ? ~__mmask64(0) : (__mmask64(1) << n) - 1, from);
#else
  Fours line{};
  if (n >= kVecBytes) std::memcpy(&line, from, kVecBytes);
  else std::memcpy(&line, from, size_t(n));
  return line;
#endif
}
SF_INLINE LaneBytes load_bytes(const int8_t* from, int n) {
#if defined(__AVX512BW__)
  return (LaneBytes)_mm_maskz_loadu_epi8(__mmask16((1u << n) - 1), from);
#else
  LaneBytes bytes{};
  if (n == kLanes) std::memcpy(&bytes, from, kLanes);
  else std::memcpy(&bytes, from, size_t(n));
  return bytes;
#endif
}
SF_INLINE Fours widened(LaneBytes x) {
#if defined(__AVX512F__)
  return (Fours)_mm512_cvtepu8_epi32((__m128i)x);
#else
  return __builtin_convertvector(x, Fours);
#endif
}

// An operand as it lies: element (w, k) is at src[w * ws + k * ks], w across rows of a or columns of b.
struct Bytes {
  const int8_t* src;
  int64_t ws, ks;

  // Values w .. w + n of one k.
  SF_INLINE LaneBytes across(int64_t w, int n, int64_t k) const {
    const int8_t* from = src + w * ws + k * ks;
    if (ws == 1) return load_bytes(from, n);
    LaneBytes bytes{};
    for (int i = 0; i < n; ++i) bytes[i] = uint8_t(from[i * ws]);
    return bytes;
  }
  // Values k .. k + 4 of w .. w + n; zero from `depth` on.
  SF_INLINE Fours fours(int64_t w, int n, int64_t k, int64_t depth) const {
    if (k >= depth) return Fours{};
    Fours r = widened(across(w, n, k));
    if (k + 1 < depth) r |= widened(across(w, n, k + 1)) << 8;
    if (k + 2 < depth) r |= widened(across(w, n, k + 2)) << 16;
    if (k + 3 < depth) r |= widened(across(w, n, k + 3)) << 24;
    return r;
  }
};
// kLanes fours of n rows along which k runs: line i has the values k + 4 i .. of each.
SF_INLINE void turned(const int8_t* const* rows, int n, int64_t k, int64_t depth, Fours (&r)[kLanes]) {
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) r[i] = i < n ? load_line(rows[i] + k, depth - k) : Fours{};
  transpose<Fours, kLanes>(r);
}

}  // namespace SF_ISA
}  // namespace sf
