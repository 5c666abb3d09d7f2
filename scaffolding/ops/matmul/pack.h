// Packing: copies a strip of a matrix so that the micro-kernel reads it front to back.
// Included only by *.cpu.cpp files; everything lives in namespace sf::SF_ISA.
//
// A strip is `count` rows of a (or columns of b) by k values, stored [k][width] in units (micro_kernel.h). Both
// operands pack the same way: "w" runs across the strip. float16 and bfloat16 become float on the way,
// except for MulBF16.
#pragma once
#include <type_traits>

#include "scaffolding/backend/cpu/simd_transpose.h"
#include "scaffolding/ops/matmul/micro_kernel.h"

namespace sf {
namespace SF_ISA {

// The first n elements, the rest zero; nothing past p + n is read.
SF_INLINE MulF32::Vec load_part(const float* p, int n) {
#if defined(__AVX512F__)
  return (MulF32::Vec)_mm512_maskz_loadu_ps(__mmask16((1u << n) - 1), p);
#elif defined(__AVX2__)
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return (MulF32::Vec)_mm256_maskload_ps(p, _mm256_cmpgt_epi32(_mm256_set1_epi32(n), lane));
#else
  MulF32::Vec v{};
  for (int i = 0; i < n; ++i) v[i] = p[i];
  return v;
#endif
}
SF_INLINE MulF64::Vec load_part(const double* p, int n) {
  MulF64::Vec v{};
  for (int i = 0; i < n; ++i) v[i] = p[i];
  return v;
}
template <class T> SF_INLINE MulF32::Vec load_part(const T* p, int n) {  // Half, BFloat16
#if defined(__AVX512BW__) && defined(__AVX512VL__)
  const __m256i halves = _mm256_maskz_loadu_epi16(__mmask16((1u << n) - 1), p);
  if constexpr (std::is_same_v<T, Half>) return (MulF32::Vec)_mm512_cvtph_ps(halves);
  else return (MulF32::Vec)_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16);
#else
  T t[kLanes] = {};
  for (int i = 0; i < n; ++i) t[i] = p[i];
  return load(t).v;
#endif
}
SF_INLINE MulF64::Vec load_full(const double* p) { return load_vec<MulF64>(p); }
template <class T> SF_INLINE MulF32::Vec load_full(const T* p) { return load(p).v; }

// Strips whose count is no multiple of a vector store whole vectors: up to one vector past the end of dst is scratch.
inline constexpr int64_t kPackSlack = kVecBytes;

// dst[k][w], w < width; w >= count becomes 0. Three sources:
//   pack_rows     element (w, k) is rows[w][k]: k runs along memory, the strip is a transpose
//   pack_columns  element (w, k) is columns[k][w]: copied as it lies
//   pack          element (w, k) is src[w * ws + k * ks]
// Loops over w run from the last vector to the first: what a partial vector spills into the next row of the strip is
// overwritten by that row's own first vector.
// Arithmetic with units of its own brings its own: Packer<K, Src>::rows, columns and strided (tile_product.h).
template <class K, class Src> struct Packer {};
template <class K, class Src>
concept HasPacker = requires {
  typename Packer<K, Src>::Unit;
};

template <class K, class Src>
requires HasPacker<K, Src> SF_INLINE void pack_rows(typename K::Unit* dst, int width, const Src* const* rows, int count,
                                                    int64_t depth) {
  Packer<K, Src>::rows(dst, width, rows, count, depth);
}
template <class K, class Src>
requires HasPacker<K, Src> SF_INLINE void pack_columns(typename K::Unit* dst, int width, const Src* const* columns,
                                                       int count, int64_t depth) {
  Packer<K, Src>::columns(dst, width, columns, count, depth);
}
template <class K, class Src>
requires HasPacker<K, Src> SF_INLINE void pack(typename K::Unit* dst, int width, const Src* src, int64_t ws, int64_t ks,
                                               int count, int64_t depth) {
  Packer<K, Src>::strided(dst, width, src, ws, ks, count, depth);
}

template <class K, class Src>
requires(!HasPacker<K, Src>) [[gnu::noinline]] void pack_rows(typename K::Unit* dst, int width, const Src* const* rows,
                                                              int count, int64_t depth) {
  constexpr int L = kVecLanes<K>;
  for (int w = (width - 1) / L * L; w >= 0; w -= L) {
    const int n = count - w < 0 ? 0 : count - w < L ? count - w : L;  // real lanes of this vector
    auto* d = dst + w;
    for (int64_t k = 0; k < depth; k += L) {
      const int m = depth - k < L ? int(depth - k) : L;
      typename K::Vec r[L];
      if (m == L && n == L) {
#pragma GCC unroll 16
        for (int i = 0; i < L; ++i) r[i] = load_full(rows[w + i] + k);
      } else if (m == L) {
#pragma GCC unroll 16
        for (int i = 0; i < L; ++i) r[i] = i < n ? load_full(rows[w + i] + k) : typename K::Vec{};
      } else {
#pragma GCC unroll 16
        for (int i = 0; i < L; ++i) r[i] = i < n ? load_part(rows[w + i] + k, m) : typename K::Vec{};
      }
      transpose<typename K::Vec, L>(r);
#pragma GCC unroll 16
      for (int i = 0; i < L; ++i)
        if (i < m) store_vec<K>(d + (k + i) * width, r[i]);
    }
  }
}

template <class K, class Src>
requires(!HasPacker<K, Src>) [[gnu::noinline]] void pack_columns(typename K::Unit* dst, int width,
                                                                 const Src* const* columns, int count, int64_t depth) {
  constexpr int L = kVecLanes<K>;
  for (int w = (width - 1) / L * L; w >= 0; w -= L) {
    const int n = count - w < 0 ? 0 : count - w < L ? count - w : L;
    if (n == L)
      for (int64_t k = 0; k < depth; ++k) store_vec<K>(dst + k * width + w, load_full(columns[k] + w));
    else
      for (int64_t k = 0; k < depth; ++k) store_vec<K>(dst + k * width + w, load_part(columns[k] + w, n));
  }
}

template <class K, class Src>
requires(!HasPacker<K, Src>) [[gnu::noinline]] void pack(typename K::Unit* dst, int width, const Src* src, int64_t ws,
                                                         int64_t ks, int count, int64_t depth) {
  constexpr int L = kVecLanes<K>;
  if (ks == 1 && ws != 1) {
    const Src* rows[kTileCols<K>];
    for (int i = 0; i < count; ++i) rows[i] = src + i * ws;
    return pack_rows<K>(dst, width, rows, count, depth);
  }
  // whole rows at a time: a power of two apart, they do not stay in a cache for a second pass
  if (ws == 1 && count == 2 * L && width == 2 * L) {
    for (int64_t k = 0; k < depth; ++k) {
      store_vec<K>(dst + k * width, load_full(src + k * ks));
      store_vec<K>(dst + k * width + L, load_full(src + k * ks + L));
    }
    return;
  }
  for (int w = (width - 1) / L * L; w >= 0; w -= L) {
    const int n = count - w < 0 ? 0 : count - w < L ? count - w : L;
    const Src* s = src + w * ws;
    auto* d = dst + w;
    if (ws == 1) {
      if (n == L)
        for (int64_t k = 0; k < depth; ++k) store_vec<K>(d + k * width, load_full(s + k * ks));
      else
        for (int64_t k = 0; k < depth; ++k) store_vec<K>(d + k * width, load_part(s + k * ks, n));
    } else {
      for (int64_t k = 0; k < depth; ++k) {
        typename K::Vec v{};
        for (int i = 0; i < n; ++i) {
          if constexpr (sizeof(Src) == sizeof(typename K::Acc)) v[i] = s[i * ws + k * ks];
          else v[i] = to_float(s[i * ws + k * ks]);
        }
        store_vec<K>(d + k * width, v);
      }
    }
  }
}

#if defined(__AVX512BF16__)
// The same for pairs along k: `depth` counts values; an odd one out is paired with 0.
SF_INLINE __m512i pair_rows(__m256i even, __m256i odd) {
  return _mm512_or_si512(_mm512_cvtepu16_epi32(even), _mm512_slli_epi32(_mm512_cvtepu16_epi32(odd), 16));
}
// Columns 0-15 (or 16-31) of two rows of 32.
template <bool kUpper> SF_INLINE __m512i pair_half(__m512i even, __m512i odd) {
  const __m512i low = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7, 38, 6, 37,
                                       5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
  const __m512i from = kUpper ? _mm512_add_epi16(low, _mm512_set1_epi16(16)) : low;
  return _mm512_permutex2var_epi16(even, from, odd);
}
template <>
[[gnu::noinline]] inline void pack_rows<MulBF16, BFloat16>(uint32_t* dst, int width, const BFloat16* const* rows,
                                                           int count, int64_t depth) {
  constexpr int L = 16;
  typedef float Vec __attribute__((vector_size(64)));
  const int64_t units = (depth + 1) / 2;
  // The next strip's rows, where rows are evenly spaced: a row is too short for the processor's prefetcher to get
  // going.
  const int64_t ahead = count > 1 ? (rows[1] - rows[0]) * count : 0;
  for (int w = (width - 1) / L * L; w >= 0; w -= L) {
    const int n = count - w < 0 ? 0 : count - w < L ? count - w : L;
    uint32_t* d = dst + w;
    for (int64_t k = 0; k < units; k += L) {
      const int64_t left = depth - 2 * k;
      const __mmask32 values = left >= 32 ? ~__mmask32(0) : (__mmask32(1) << left) - 1;
      const int m = units - k < L ? int(units - k) : L;
      Vec r[L];
      for (int i = 0; i < n; ++i) __builtin_prefetch(rows[w + i] + 2 * k + ahead, 0, 2);
#pragma GCC unroll 16
      for (int i = 0; i < L; ++i) r[i] = i < n ? (Vec)_mm512_maskz_loadu_epi16(values, rows[w + i] + 2 * k) : Vec{};
      transpose<Vec, L>(r);
      if (m == L) {
#pragma GCC unroll 16
        for (int i = 0; i < L; ++i) __builtin_memcpy(d + (k + i) * width, &r[i], 64);
      } else {
        for (int i = 0; i < m; ++i) __builtin_memcpy(d + (k + i) * width, &r[i], 64);
      }
    }
  }
}
template <>
[[gnu::noinline]] inline void pack_columns<MulBF16, BFloat16>(uint32_t* dst, int width, const BFloat16* const* columns,
                                                              int count, int64_t depth) {
  constexpr int L = 16;
  const int64_t whole = depth / 2;
  for (int w = (width - 1) / L * L; w >= 0; w -= L) {
    const int n = count - w < 0 ? 0 : count - w < L ? count - w : L;
    const __mmask16 lanes = __mmask16((1u << n) - 1);
    for (int64_t k = 0; k < whole; ++k)
      _mm512_storeu_si512(dst + k * width + w, pair_rows(_mm256_maskz_loadu_epi16(lanes, columns[2 * k] + w),
                                                         _mm256_maskz_loadu_epi16(lanes, columns[2 * k + 1] + w)));
    if (depth & 1)
      _mm512_storeu_si512(dst + whole * width + w,
                          pair_rows(_mm256_maskz_loadu_epi16(lanes, columns[2 * whole] + w), _mm256_setzero_si256()));
  }
}
template <>
[[gnu::noinline]] inline void pack<MulBF16, BFloat16>(uint32_t* dst, int width, const BFloat16* src, int64_t ws,
                                                      int64_t ks, int count, int64_t depth) {
  constexpr int L = 16;
  if (ks == 1 && ws != 1) {
    const BFloat16* rows[kTileCols<MulBF16>];
    for (int i = 0; i < count; ++i) rows[i] = src + i * ws;
    return pack_rows<MulBF16, BFloat16>(dst, width, rows, count, depth);
  }
  const int64_t whole = depth / 2;
  if (ws == 1 && count == 2 * L && width == 2 * L && depth % 2 == 0) {  // whole rows at a time, as above
    for (int64_t k = 0; k < whole; ++k) {
      const BFloat16 *p = src + 2 * k * ks, *q = p + ks;
      __builtin_prefetch(p + 32, 0, 2);  // the next strip: no prefetcher of the processor follows steps of a row
      __builtin_prefetch(q + 32, 0, 2);
      const __m512i even = _mm512_loadu_si512(p), odd = _mm512_loadu_si512(q);
      _mm512_storeu_si512(dst + k * width, pair_half<false>(even, odd));
      _mm512_storeu_si512(dst + k * width + L, pair_half<true>(even, odd));
    }
    return;
  }
  for (int w = (width - 1) / L * L; w >= 0; w -= L) {
    const int n = count - w < 0 ? 0 : count - w < L ? count - w : L;
    const BFloat16* s = src + w * ws;
    uint32_t* d = dst + w;
    const __mmask16 lanes = __mmask16((1u << n) - 1);
    if (ws == 1) {
      for (int64_t k = 0; k < whole; ++k)
        _mm512_storeu_si512(d + k * width, pair_rows(_mm256_maskz_loadu_epi16(lanes, s + 2 * k * ks),
                                                     _mm256_maskz_loadu_epi16(lanes, s + (2 * k + 1) * ks)));
      if (depth & 1)
        _mm512_storeu_si512(d + whole * width,
                            pair_rows(_mm256_maskz_loadu_epi16(lanes, s + 2 * whole * ks), _mm256_setzero_si256()));
    } else {
      for (int64_t k = 0; k < depth; k += 2) {
        alignas(64) uint32_t v[L] = {};
        for (int i = 0; i < n; ++i) {
          v[i] = s[i * ws + k * ks].bits;
          if (k + 1 < depth) v[i] |= uint32_t(s[i * ws + (k + 1) * ks].bits) << 16;
        }
        __builtin_memcpy(d + k / 2 * width, v, sizeof v);
      }
    }
  }
}
#endif

}  // namespace SF_ISA
}  // namespace sf
