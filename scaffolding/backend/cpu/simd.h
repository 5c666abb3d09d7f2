// Vectors of float32 for CPU kernels. Included only by *.cpu.cpp files, which are compiled once per instruction set:
// everything here lives in namespace sf::SF_ISA and inlines, so nothing of one instruction set is seen by another.
//
//   vf   kLanes floats (4, 8 or 16)        vm   the mask of a comparison of two vf
//   load/store convert from and to float16 and bfloat16; load_n/store_n touch only the first n lanes.
//   Maths on vectors (exp, log, erf, ...) is in simd_math.h, which also has the scalar overloads, so that one
//   expression template serves float vectors and double scalars.
#pragma once
#ifndef SF_ISA
#define SF_ISA base
#endif
#if defined(__x86_64__)
#if !defined(__clang__)
#pragma GCC diagnostic push  // g++ 12 initialises the unused source of unmasked intrinsics with itself, and warns
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#if !defined(__clang__)
#pragma GCC diagnostic pop
#endif
#endif
#include <cstring>

#include "scaffolding/core/half.h"

namespace sf {
namespace SF_ISA {

// Tiles in plain C++ (tiles.h) go with vectors in plain C++, of the width that tiles have.
#if defined(__SSE4_1__) && !defined(__AVX__) && !defined(SF_AMX_EMULATED)
#define SF_SSE 1
#else
#define SF_SSE 0
#endif

#if defined(__AVX512F__) || defined(SF_AMX_EMULATED)
inline constexpr int kLanes = 16;
#elif defined(__AVX__)
inline constexpr int kLanes = 8;
#else
inline constexpr int kLanes = 4;
#endif

typedef float vf_raw __attribute__((vector_size(kLanes * 4)));
typedef int32_t vi_raw __attribute__((vector_size(kLanes * 4)));
typedef float vf_raw_u __attribute__((vector_size(kLanes * 4), aligned(4), may_alias));
typedef uint16_t vh_raw __attribute__((vector_size(kLanes * 2)));

struct vm {
  vi_raw m;
};  // lanes are 0 or -1

struct vf {
  vf_raw v;
  vf() = default;
  SF_INLINE vf(vf_raw x) : v(x) {}
  SF_INLINE vf(float x) : v(x - vf_raw{}) {}
  SF_INLINE explicit vf(double x) : vf(float(x)) {}
  SF_INLINE explicit vf(int x) : vf(float(x)) {}
  SF_INLINE float operator[](int i) const { return v[i]; }
};

SF_INLINE vf operator+(vf a, vf b) { return a.v + b.v; }
SF_INLINE vf operator-(vf a, vf b) { return a.v - b.v; }
SF_INLINE vf operator*(vf a, vf b) { return a.v * b.v; }
SF_INLINE vf operator/(vf a, vf b) { return a.v / b.v; }
SF_INLINE vf operator-(vf a) { return -a.v; }
SF_INLINE vf& operator+=(vf& a, vf b) {
  a.v += b.v;
  return a;
}
SF_INLINE vf& operator-=(vf& a, vf b) {
  a.v -= b.v;
  return a;
}
SF_INLINE vf& operator*=(vf& a, vf b) {
  a.v *= b.v;
  return a;
}
SF_INLINE vm operator<(vf a, vf b) { return {vi_raw(a.v < b.v)}; }
SF_INLINE vm operator<=(vf a, vf b) { return {vi_raw(a.v <= b.v)}; }
SF_INLINE vm operator>(vf a, vf b) { return {vi_raw(a.v > b.v)}; }
SF_INLINE vm operator>=(vf a, vf b) { return {vi_raw(a.v >= b.v)}; }
SF_INLINE vm operator==(vf a, vf b) { return {vi_raw(a.v == b.v)}; }
SF_INLINE vm operator!=(vf a, vf b) { return {vi_raw(a.v != b.v)}; }
SF_INLINE vm operator&(vm a, vm b) { return {a.m & b.m}; }
SF_INLINE vm operator|(vm a, vm b) { return {a.m | b.m}; }
SF_INLINE vm operator!(vm a) { return {~a.m}; }
SF_INLINE vf select(vm m, vf a, vf b) { return m.m ? a.v : b.v; }

SF_INLINE vi_raw bits(vf a) { return (vi_raw)a.v; }
SF_INLINE vf from_bits(vi_raw a) { return (vf_raw)a; }
SF_INLINE vf abs(vf a) { return from_bits(bits(a) & 0x7fffffff); }

// a * b + c, one rounding where the instruction set has it.
SF_INLINE vf fma(vf a, vf b, vf c) {
#if defined(__AVX512F__)
  return (vf_raw)_mm512_fmadd_ps((__m512)a.v, (__m512)b.v, (__m512)c.v);
#elif defined(__FMA__)
  return (vf_raw)_mm256_fmadd_ps((__m256)a.v, (__m256)b.v, (__m256)c.v);
#else
  return a.v * b.v + c.v;
#endif
}
SF_INLINE double fma(double a, double b, double c) { return a * b + c; }

// IEEE maximum and minimum of numbers: the second operand is returned when one is NaN (as the instructions do).
// As instructions, because g++ turns a > b ? a : b with a constant into a comparison and a blend.
#if defined(__AVX512F__)
SF_INLINE vf max(vf a, vf b) { return (vf_raw)_mm512_max_ps((__m512)a.v, (__m512)b.v); }
SF_INLINE vf min(vf a, vf b) { return (vf_raw)_mm512_min_ps((__m512)a.v, (__m512)b.v); }
#elif defined(__AVX__)
SF_INLINE vf max(vf a, vf b) { return (vf_raw)_mm256_max_ps((__m256)a.v, (__m256)b.v); }
SF_INLINE vf min(vf a, vf b) { return (vf_raw)_mm256_min_ps((__m256)a.v, (__m256)b.v); }
#elif SF_SSE
SF_INLINE vf max(vf a, vf b) { return (vf_raw)_mm_max_ps((__m128)a.v, (__m128)b.v); }
SF_INLINE vf min(vf a, vf b) { return (vf_raw)_mm_min_ps((__m128)a.v, (__m128)b.v); }
#else
SF_INLINE vf max(vf a, vf b) { return a.v > b.v ? a.v : b.v; }
SF_INLINE vf min(vf a, vf b) { return a.v < b.v ? a.v : b.v; }
#endif

SF_INLINE vf load(const float* p) { return (vf_raw) * (const vf_raw_u*)p; }
SF_INLINE void store(float* p, vf x) { *(vf_raw_u*)p = (vf_raw_u)x.v; }

SF_INLINE vf load(const BFloat16* p) {
#if defined(__AVX512F__)  // generic vectors widen in two halves here
  return (vf_raw)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)p)), 16);
#elif defined(__AVX2__)
  return (vf_raw)_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i*)p)), 16);
#else
  vh_raw h;
  std::memcpy(&h, p, sizeof h);
  return from_bits(__builtin_convertvector(h, vi_raw) << 16);
#endif
}
SF_INLINE void store(BFloat16* p, vf x) {
#if defined(__AVX512BF16__)
  auto h = _mm512_cvtneps_pbh((__m512)x.v);
#else
  typedef uint32_t vu_raw __attribute__((vector_size(kLanes * 4)));
  vu_raw u = (vu_raw)x.v;
  vu_raw rounded = (u + 0x7fff + ((u >> 16) & 1)) >> 16, nan = (u >> 16) | 0x40;
  vu_raw wide = x.v == x.v ? rounded : nan;
#if defined(__AVX2__) && !defined(__AVX512F__)  // g++ 12 masks what is below 2^16 already, and crosses halves
  auto h = _mm_packus_epi32(_mm256_castsi256_si128((__m256i)wide), _mm256_extracti128_si256((__m256i)wide, 1));
#else
  vh_raw h = __builtin_convertvector(wide, vh_raw);
#endif
#endif
  std::memcpy(p, &h, sizeof(uint16_t) * kLanes);
}
SF_INLINE vf load(const Half* p) {
#if defined(__AVX512F__)
  return (vf_raw)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)p));
#elif defined(__F16C__)
  return (vf_raw)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)p));
#else
  vf_raw r;
  for (int i = 0; i < kLanes; ++i) r[i] = to_float(p[i]);
  return r;
#endif
}
SF_INLINE void store(Half* p, vf x) {
#if defined(__AVX512F__)
  _mm256_storeu_si256((__m256i*)p, _mm512_cvtps_ph((__m512)x.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#elif defined(__F16C__)
  _mm_storeu_si128((__m128i*)p, _mm256_cvtps_ph((__m256)x.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#else
  for (int i = 0; i < kLanes; ++i) p[i] = to_half(x.v[i]);
#endif
}

// The first n lanes (0 <= n <= kLanes); the others read as `fill`. Bytes past p + n are not touched.
template <class T> SF_INLINE vf load_n(const T* p, int n, float fill = 0) {
  if (n == kLanes) return load(p);
  alignas(64) float t[kLanes];
  for (int i = 0; i < kLanes; ++i) t[i] = i < n ? to_float(p[i]) : fill;
  return load(t);
}
template <class T> SF_INLINE void store_n(T* p, vf x, int n) {
  if (n == kLanes) return store(p, x);
  alignas(64) float t[kLanes];
  store(t, x);
  for (int i = 0; i < n; ++i) p[i] = from_float<T>(t[i]);
}
// With masks where the instruction set has them: the tail of a short row costs as much as a whole vector.
#if defined(__AVX512BW__)
SF_INLINE __mmask16 first_lanes(int n) { return __mmask16((1u << n) - 1); }
SF_INLINE vf load_n(const float* p, int n, float fill = 0) {
  if (n == kLanes) return load(p);
  return (vf_raw)_mm512_mask_loadu_ps((__m512)vf(fill).v, first_lanes(n), p);
}
SF_INLINE vf load_n(const BFloat16* p, int n, float fill = 0) {
  if (n == kLanes) return load(p);
  __m512i wide = _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(first_lanes(n), p)), 16);
  return (vf_raw)_mm512_mask_mov_ps((__m512)vf(fill).v, first_lanes(n), (__m512)wide);
}
SF_INLINE vf load_n(const Half* p, int n, float fill = 0) {
  if (n == kLanes) return load(p);
  return (vf_raw)_mm512_mask_cvtph_ps((__m512)vf(fill).v, first_lanes(n), _mm256_maskz_loadu_epi16(first_lanes(n), p));
}
SF_INLINE void store_n(float* p, vf x, int n) {
  if (n == kLanes) return store(p, x);
  _mm512_mask_storeu_ps(p, first_lanes(n), (__m512)x.v);
}
template <class T> SF_INLINE void store_half_n(T* p, vf x, int n) {
  T t[kLanes];
  store(t, x);
  _mm256_mask_storeu_epi16(p, first_lanes(n), _mm256_loadu_si256((const __m256i*)t));
}
SF_INLINE void store_n(BFloat16* p, vf x, int n) { n == kLanes ? store(p, x) : store_half_n(p, x, n); }
SF_INLINE void store_n(Half* p, vf x, int n) { n == kLanes ? store(p, x) : store_half_n(p, x, n); }
#elif defined(__AVX2__)
SF_INLINE __m256i first_lanes(int n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
SF_INLINE vf load_n(const float* p, int n, float fill = 0) {
  if (n == kLanes) return load(p);
  __m256i m = first_lanes(n);
  return (vf_raw)_mm256_blendv_ps((__m256)vf(fill).v, _mm256_maskload_ps(p, m), (__m256)m);
}
SF_INLINE void store_n(float* p, vf x, int n) {
  if (n == kLanes) return store(p, x);
  _mm256_maskstore_ps(p, first_lanes(n), (__m256)x.v);
}
#endif

// Past the caches, for outputs that would only evict their inputs. p on a vector's boundary; stream_fence() before
// another thread may read.
SF_INLINE void store_stream(float* p, vf x) {
#if defined(__AVX512F__)
  _mm512_stream_ps(p, (__m512)x.v);
#elif defined(__AVX__)
  _mm256_stream_ps(p, (__m256)x.v);
#elif SF_SSE
  _mm_stream_ps(p, (__m128)x.v);
#else
  store(p, x);
#endif
}
SF_INLINE void stream_fence() {
#if defined(__SSE__)
  _mm_sfence();
#endif
}

// Lanes 0 1 2 3 ... become 1 0 3 2 ...
SF_INLINE vf swap_pairs(vf x) {
#if defined(__AVX512F__)
  return (vf_raw)_mm512_maskz_permute_ps(__mmask16(-1), (__m512)x.v, 0xb1);
#elif defined(__AVX__)
  return (vf_raw)_mm256_permute_ps((__m256)x.v, 0xb1);
#elif SF_SSE
  return (vf_raw)_mm_shuffle_ps((__m128)x.v, (__m128)x.v, 0xb1);
#else
  vf r;
  for (int i = 0; i < kLanes; ++i) r.v[i] = x.v[i ^ 1];
  return r;
#endif
}
// The lower half of the lanes, each twice: 0 0 1 1 ...
SF_INLINE vf each_twice(vf x) {
#if defined(__AVX512F__)
  const __m512i at = _mm512_set_epi32(7, 7, 6, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1, 0, 0);
  return (vf_raw)_mm512_maskz_permutexvar_ps(__mmask16(-1), at, (__m512)x.v);
#elif defined(__AVX2__)
  return (vf_raw)_mm256_permutevar8x32_ps((__m256)x.v, _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3));
#elif SF_SSE
  return (vf_raw)_mm_unpacklo_ps((__m128)x.v, (__m128)x.v);
#else
  vf r;
  for (int i = 0; i < kLanes; ++i) r.v[i] = x.v[i >> 1];
  return r;
#endif
}

SF_INLINE float reduce_add(vf x) {
#if defined(__AVX512F__)
  return _mm512_reduce_add_ps((__m512)x.v);
#else
  float s = 0;
  for (int i = 0; i < kLanes; ++i) s += x.v[i];
  return s;
#endif
}
SF_INLINE float reduce_max(vf x) {
#if defined(__AVX512F__)
  return _mm512_reduce_max_ps((__m512)x.v);
#else
  float s = x.v[0];
  for (int i = 1; i < kLanes; ++i) s = x.v[i] > s ? x.v[i] : s;
  return s;
#endif
}

}  // namespace SF_ISA
}  // namespace sf
