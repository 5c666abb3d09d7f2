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

template <class T> SF_INLINE T vector_at(const void* p) {
  T v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}
// w[i]: bytes 4 i .. 4 i + 3 of the sixteen that are at `at` of kLanes rows. They are read into quarters of vectors,
// and nothing moves from one quarter to another.
template <class T> SF_INLINE void sixteen(const T* const* rows, int64_t at, Fours (&w)[4]) {
#if defined(__AVX512F__)
  __m512i r[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    r[i] = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i*)(rows[i] + at)));
    r[i] = _mm512_inserti32x4(r[i], _mm_loadu_si128((const __m128i*)(rows[4 + i] + at)), 1);
    r[i] = _mm512_inserti32x4(r[i], _mm_loadu_si128((const __m128i*)(rows[8 + i] + at)), 2);
    r[i] = _mm512_inserti32x4(r[i], _mm_loadu_si128((const __m128i*)(rows[12 + i] + at)), 3);
  }
  const __m512i a = _mm512_unpacklo_epi32(r[0], r[1]), b = _mm512_unpackhi_epi32(r[0], r[1]),
                c = _mm512_unpacklo_epi32(r[2], r[3]), d = _mm512_unpackhi_epi32(r[2], r[3]);
  w[0] = (Fours)_mm512_unpacklo_epi64(a, c), w[1] = (Fours)_mm512_unpackhi_epi64(a, c);
  w[2] = (Fours)_mm512_unpacklo_epi64(b, d), w[3] = (Fours)_mm512_unpackhi_epi64(b, d);
#elif defined(__AVX2__)
  __m256i r[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i)
    r[i] = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const __m128i*)(rows[i] + at))),
                                   _mm_loadu_si128((const __m128i*)(rows[4 + i] + at)), 1);
  const __m256i a = _mm256_unpacklo_epi32(r[0], r[1]), b = _mm256_unpackhi_epi32(r[0], r[1]),
                c = _mm256_unpacklo_epi32(r[2], r[3]), d = _mm256_unpackhi_epi32(r[2], r[3]);
  w[0] = (Fours)_mm256_unpacklo_epi64(a, c), w[1] = (Fours)_mm256_unpackhi_epi64(a, c);
  w[2] = (Fours)_mm256_unpacklo_epi64(b, d), w[3] = (Fours)_mm256_unpackhi_epi64(b, d);
#else
  if constexpr (kLanes == 4) {
    for (int c = 0; c < 4; ++c) w[c] = vector_at<Fours>(rows[c] + at);
    return transpose<Fours, 4>(w);
  }
  for (int i = 0; i < 4; ++i)
    for (int c = 0; c < kLanes; ++c) w[i][c] = vector_at<uint32_t>(rows[c] + at + 4 * i);
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
  if (n == kLanes && k + kVecBytes <= depth) {
    // Rows a page apart share a set of L1, which has fewer ways than there are lanes: each line is read once.
    alignas(64) uint8_t lines[kLanes][kVecBytes];
    const uint8_t* at[kLanes];
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) std::memcpy(lines[i], rows[i] + k, kVecBytes), at[i] = lines[i];
#pragma GCC unroll 4
    for (int i = 0; i < kLanes; i += 4) {
      Fours w[4];
      sixteen(at, 4 * i, w);
      for (int j = 0; j < 4; ++j) r[i + j] = w[j];
    }
    return;
  }
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) r[i] = i < n ? load_line(rows[i] + k, depth - k) : Fours{};
  transpose<Fours, kLanes>(r);
}

}  // namespace SF_ISA
}  // namespace sf
