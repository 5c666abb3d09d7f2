// The tile engine of the CPU attention kernels: micro-kernel, exp2, transposition and packing.
// Included only by attention*.cpu.cpp and attention*.amx.cpp; everything lives in namespace sf::SF_ISA and inlines.
//
// Scores are kept transposed, S^T[key][query], with queries along the vector lanes. That way
//   - the softmax runs down the columns: running maximum, sum and rescale factor are vectors, no horizontal reduction;
//   - keys and values enter as broadcast scalars from their natural [L][D] layout, so neither needs a transposed copy;
//   - a head size of 40 costs 40 broadcasts, not 48 padded lanes: forward has no padding at all when D % kRows == 0.
// Only the query block (a few dozen rows) is transposed, once, while it is packed.
//
// All products are one micro-kernel, C[kRows][NV vectors] += A[kRows][depth] B[depth][NV vectors], whose A and B
// consist of 32-bit units: a float, or a Pair of bfloat16 neighbours along the depth (vdpbf16ps multiplies and adds
// both).
#pragma once
#include "scaffolding/backend/cpu/bf16_pairs.h"
#include "scaffolding/backend/cpu/simd.h"
#include "scaffolding/backend/cpu/simd_transpose.h"

namespace sf {
namespace SF_ISA {

// C fills the register file: 8x3 + 3 + 1 of 32 registers of 512 bits; 4x3 + 3 + 1 = all 16 of 256 bits; 4x2 without
// FMA, whose separate multiply needs a temporary. Per step 8x3 does 24 FMA for 11 loads, 4x3 12 for 7: below the two
// loads per two FMA that current cores sustain. kRows divides the usual head sizes (40, 64, 72, 80, 128, 160).
#if defined(__AVX512F__)
inline constexpr int kRows = 8, kVectors = 3;
#elif defined(__AVX__)
inline constexpr int kRows = 4, kVectors = 3;
#else
inline constexpr int kRows = 4, kVectors = 2;
#endif
inline constexpr int kQueries = kVectors * kLanes;  // queries in a block: 48, 24 or 8

inline constexpr float kLog2e = 1.44269504f, kLn2 = 0.693147181f, kLowest = -3.40282347e38f;
inline constexpr float kNegativeInfinity = -__builtin_inff();

SF_INLINE constexpr int64_t round_up(int64_t n, int64_t m) { return (n + m - 1) / m * m; }
SF_INLINE constexpr int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

struct Pair {
  uint32_t bits;
};  // two bfloat16, the lower depth index in the low half

template <class U> inline constexpr int kPerUnit = 1;
template <> inline constexpr int kPerUnit<Pair> = 2;

SF_INLINE vf load_units(const float* p) { return load(p); }
SF_INLINE vf broadcast(const float* p) { return vf(*p); }
SF_INLINE vf multiply_add(vf a, vf b, vf c) { return fma(a, b, c); }
#if defined(__AVX512BF16__)
struct vp {
  __m512i v;
};
SF_INLINE vp load_units(const Pair* p) { return {_mm512_loadu_si512(p)}; }
SF_INLINE vp broadcast(const Pair* p) { return {_mm512_set1_epi32(int(p->bits))}; }
SF_INLINE vf multiply_add(vp a, vp b, vf c) {
  return (vf_raw)_mm512_dpbf16_ps((__m512)c.v, (__m512bh)a.v, (__m512bh)b.v);
}
#endif

// c[i][j] += sum over t of A(i, t) b[t * ldb + j * kLanes], with A(i, t) = a[i * lda + t],
// or a[t * lda + i] when kColumns.
template <bool kColumns, class U, int NV>
SF_INLINE void tile_product(vf (&c)[kRows][NV], const U* a, int64_t lda, const U* b, int64_t ldb, int64_t depth) {
  for (int64_t t = 0; t < depth; ++t) {
    decltype(load_units(b)) row[NV];
#pragma GCC unroll 4
    for (int j = 0; j < NV; ++j) row[j] = load_units(b + j * kLanes);
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      auto x = broadcast(kColumns ? a + i : a + i * lda);
#pragma GCC unroll 4
      for (int j = 0; j < NV; ++j) c[i][j] = multiply_add(x, row[j], c[i][j]);
    }
    a += kColumns ? lda : 1;
    b += ldb;
  }
}

// 2^t for t <= 127. Exactly 0 below -127 (so for -inf: a masked key has no weight at all, and an additive mask of -100
// feeds no denormals to the products, which many processors multiply slowly); NaN for NaN.
// kDegree 5: relative error 9e-8; 4: 2.9e-6, three digits below a bfloat16. 2^0 is exactly 1.
template <int kDegree> SF_INLINE vf exp2_at_most(vf t) {
  static_assert(kDegree == 4 || kDegree == 5);
#if defined(__AVX512DQ__)
  // vreduceps and vscalefps save four of eleven instructions: forward +2 % (float32), +3 % (bfloat16).
  __m512 x = (__m512)t.v;
  __mmask16 alive = _mm512_cmp_ps_mask(x, _mm512_set1_ps(-126.0f), _CMP_NLT_UQ);
  vf f((vf_raw)_mm512_maskz_reduce_ps(0xffff, x, 1)), p;  // t - floor(t)
  if constexpr (kDegree == 5) {
    p = fma(vf(0.0018671305f), f, vf(0.00901702942f));
    p = fma(p, f, vf(0.0557999138f));
    p = fma(p, f, vf(0.24016445f));
    p = fma(p, f, vf(0.693151312f));
  } else {
    p = fma(vf(0.013426688f), f, vf(0.0522424682f));
    p = fma(p, f, vf(0.241280208f));
    p = fma(p, f, vf(0.693044845f));
  }
  p = fma(p, f, vf(1.0f));
  return (vf_raw)_mm512_maskz_scalef_ps(alive, (__m512)p.v, x);
#else
  // Rounding by a magic constant leaves the integer part in the low mantissa bits,
  // ready to be shifted into the exponent.
  t = max(vf(-127.0f), t);
  vf magic(12582912.0f), shifted = t + magic, f = t - (shifted - magic), p;
  if constexpr (kDegree == 5) {
    p = fma(vf(0.00132647273f), f, vf(0.00967151279f));
    p = fma(p, f, vf(0.0555073374f));
    p = fma(p, f, vf(0.240222421f));
    p = fma(p, f, vf(0.693146978f));
  } else {
    p = fma(vf(0.00958285324f), f, vf(0.0559064259f));
    p = fma(p, f, vf(0.240240986f));
    p = fma(p, f, vf(0.693124193f));
  }
  p = fma(p, f, vf(1.0f));
  return from_bits(bits(p) + (bits(shifted) << 23));
#endif
}
#if defined(__AVX512BF16__)
// The same for what is rounded to bfloat16 at once, by join(): 9e-5 relative, a twentieth of that rounding, and what is
// denormal here is 0 there.
SF_INLINE vf exp2_of_pairs(vf t) {
  __m512 x = (__m512)t.v;
  vf f((vf_raw)_mm512_maskz_reduce_ps(0xffff, x, 1));
  vf p = fma(vf(0.0770670399f), f, vf(0.227644995f));
  p = fma(fma(p, f, vf(0.695116758f)), f, vf(1.0f));
  return (vf_raw)_mm512_maskz_scalef_ps(0xffff, (__m512)p.v, x);
}
#endif
template <class U> inline constexpr int kExpDegree = 5;
template <> inline constexpr int kExpDegree<Pair> = 4;

// The units of one row from element e on: floats converted from T, or pairs of bfloat16 as they are. Zero past the end.
// load_n masks the end of a row; element by element it cost 2 to 3 % of the forward pass at a head size of 40.
template <class U> struct Units;
template <> struct Units<float> {
  template <class T> SF_INLINE static vf_raw read(const T* row, int64_t e, int64_t length, bool negate) {
    vf x = load_n(row + e, int(smaller(kLanes, length - e)));
    return negate ? (-x).v : x.v;
  }
};
#if defined(__AVX512BF16__)
template <> struct Units<Pair> {
  SF_INLINE static vf_raw read(const BFloat16* row, int64_t e, int64_t length, bool negate) {
    int64_t left = length - e;
    __mmask32 m = left >= 2 * kLanes ? ~__mmask32(0) : (__mmask32(1) << left) - 1;
    __m512i x = _mm512_maskz_loadu_epi16(m, row + e);
    return (vf_raw)(negate ? _mm512_xor_si512(x, _mm512_set1_epi32(int(0x80008000u))) : x);
  }
};
#endif

SF_INLINE void store_units(float* p, vf_raw x) { store(p, x); }
SF_INLINE void store_units(Pair* p, vf_raw x) { std::memcpy(static_cast<void*>(p), &x, sizeof x); }

// Units in a row of `length` elements, and the same rounded up to whole vectors (the width of packed rows).
template <class U> SF_INLINE int64_t units(int64_t length) { return (length + kPerUnit<U> - 1) / kPerUnit<U>; }
template <class U> SF_INLINE int64_t packed(int64_t length) { return round_up(units<U>(length), kLanes); }

// rows[0, count)[length] -> dst[packed(length)][kQueries], zero where there is nothing.
template <class U, class T>
SF_INLINE void pack_transposed(U* dst, const T* const* rows, int count, int64_t length, bool negate) {
  for (int g = 0; g < kQueries; g += kLanes) {
    for (int64_t u = 0; u < packed<U>(length); u += kLanes) {
      vf_raw r[kLanes];
      for (int i = 0; i < kLanes; ++i)
        r[i] = g + i < count ? Units<U>::read(rows[g + i], u * kPerUnit<U>, length, negate) : vf_raw{};
      transpose(r);
      for (int i = 0; i < kLanes; ++i) store_units(dst + (u + i) * kQueries + g, r[i]);
    }
  }
}

// row(0) .. row(count - 1), each of `length` elements -> dst[rounded][packed(length)], zero where there is nothing.
template <class U, class Row>
SF_INLINE void pack_rows(U* dst, const Row& row, int64_t count, int64_t rounded, int64_t length) {
  int64_t width = packed<U>(length);
  for (int64_t i = 0; i < rounded; ++i, dst += width)
    for (int64_t u = 0; u < width; u += kLanes)
      store_units(dst + u, i < count ? Units<U>::read(row(i), u * kPerUnit<U>, length, false) : vf_raw{});
}

// The operand of a product that sums over rows: dst[units(count)][round_up(length, kLanes)]. Floats stay rows; pairs
// join row 2i and row 2i + 1 element by element (a missing last row counts as zero).
template <class Row> SF_INLINE void pack_depth(float* dst, const Row& row, int64_t count, int64_t length) {
  pack_rows(dst, row, count, count, length);
}
#if defined(__AVX512BF16__)
SF_INLINE __m512i widen(const BFloat16* row, int64_t e, int64_t length) {
  __mmask16 m = length - e >= kLanes ? 0xffff : __mmask16((1u << (length - e)) - 1);
  return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(m, row + e));
}
template <class Row> SF_INLINE void pack_depth(Pair* dst, const Row& row, int64_t count, int64_t length) {
  int64_t width = round_up(length, kLanes);
  for (int64_t i = 0; i < count; i += 2, dst += width)
    for (int64_t e = 0; e < length; e += kLanes) {
      __m512i low = widen(row(i), e, length);
      __m512i high = i + 1 < count ? widen(row(i + 1), e, length) : _mm512_setzero_si512();
      _mm512_storeu_si512(dst + e, _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
    }
}
#endif

}  // namespace SF_ISA
}  // namespace sf
