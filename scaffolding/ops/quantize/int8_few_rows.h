// int8 activations of few rows times a weight of int8: dot products along k, with both operands where they lie, or
// strips that are multiplied as they are packed. Packing the whole weight would cost more than reading it.
// Included only by *.cpu.cpp files; everything lives in namespace sf::SF_ISA.
#pragma once
#include "scaffolding/ops/int_mm/int8_dots.h"
#include "scaffolding/ops/quantize/int8_product.h"

namespace sf {
namespace SF_ISA {

constexpr int64_t kDotInts = 8, kFewInts = 64;  // rows: up to which dots are quicker, and strips than whole packings
constexpr int kIntRows = kLanes == 16 ? 4 : 2, kIntCols = 4;

// What a row of activations is beside lines of the weight, kVecBytes of values at a time: bytes plus 128, or 16 bits.
template <class K> struct IntLine {
  static constexpr int kVecs = K::kOffset ? 1 : 2;
  Fours part[kVecs];
  SF_INLINE static IntLine of(Fours bytes) {
    if constexpr (K::kOffset) return {{bytes}};
    typedef int8_t HalfBytes __attribute__((vector_size(kVecBytes / 2)));
    typedef int16_t Shorts __attribute__((vector_size(kVecBytes)));
    HalfBytes half[2];
    std::memcpy(half, &bytes, sizeof half);
    IntLine l;
    for (int i = 0; i < kVecs; ++i) l.part[i] = (Fours) __builtin_convertvector(half[i], Shorts);
    return l;
  }
};
template <class K> SF_INLINE typename K::Vec add_line(const IntLine<K>& a, const IntLine<K>& b, typename K::Vec sum) {
  for (int i = 0; i < IntLine<K>::kVecs; ++i)
    sum = K::mul_add((typename K::Vec)a.part[i], (typename K::Vec)b.part[i], sum);
  return sum;
}
template <class V> SF_INLINE int32_t total(V v) {
  uint32_t sum = 0;
#if defined(__AVX512F__)
  sum = uint32_t(_mm512_reduce_add_epi32((__m512i)v));
#else
  for (int i = 0; i < kLanes; ++i) sum += v[i];
#endif
  return int32_t(sum);
}

// sums[MR][sums_row], kIntCols of each, from rows of a and of the weight; k is rounded up in a, with what adds nothing.
template <class K, int MR>
[[gnu::noinline]] static void int_dots(int64_t k, const IntLine<K>* a, int64_t a_row, const int8_t* const* b,
                                       int64_t ahead, int32_t* sums, int64_t sums_row) {
  typename K::Vec acc[MR][kIntCols] = {};
  for (int64_t x = 0; x < k; x += kVecBytes) {
    IntLine<K> line[kIntCols];
#pragma GCC unroll 4
    for (int j = 0; j < kIntCols; ++j) {
      __builtin_prefetch(b[j] + x + ahead, 0, 2);
      line[j] = IntLine<K>::of(load_line(b[j] + x, k - x));
    }
#pragma GCC unroll 4
    for (int i = 0; i < MR; ++i) {
      const IntLine<K> row = a[i * a_row + x / kVecBytes];
#pragma GCC unroll 4
      for (int j = 0; j < kIntCols; ++j) acc[i][j] = add_line<K>(row, line[j], acc[i][j]);
    }
  }
  for (int i = 0; i < MR; ++i)
    for (int j = 0; j < kIntCols; ++j) sums[i * sums_row + j] = total(acc[i][j]);
}

template <class K> static void multiply_dotted_ints(const Int8Linear& g) {
  constexpr int NR = kTileCols<K>;
  const int64_t m = g.y.sizes[0], n = g.y.sizes[1], k = g.a.sizes[1], lines = ceil_div(k, kVecBytes);
  const int64_t rows = m + (K::kOffset ? 1 : 0);  // the last: 128 everywhere, for the corrections
  auto* a = static_cast<IntLine<K>*>(scratch(size_t(rows * lines) * sizeof(IntLine<K>), kSlotA));
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t x = 0; x < lines; ++x) {
      Fours bytes = i < m ? load_line(g.a.as<const int8_t>() + i * k + x * kVecBytes, k - x * kVecBytes) : Fours{};
      if constexpr (K::kOffset) bytes ^= 0x80808080u;
      a[i * lines + x] = IntLine<K>::of(bytes);
    }
  const ScaledEpilogue e = scaled_epilogue<K>(g);
  const int8_t* weight = g.weight.as<const int8_t>();
  parallel_for(ceil_div(n, NR), ceil_div(kDotWork, k * NR * max64(2, m)), [&](int64_t begin, int64_t end) {
    alignas(64) int32_t sums[(kDotInts + 1) * NR] = {};
    for (int64_t c0 = begin * NR; c0 < min64(n, end * NR); c0 += NR) {
      const int cols = int(min64(NR, n - c0));
      for (int j = 0; j < cols; j += kIntCols) {
        const int8_t* b[kIntCols];  // past the last column the last one again: its sums are not used
        for (int i = 0; i < kIntCols; ++i) b[i] = weight + (c0 + min64(j + i, cols - 1)) * k;
        int64_t i = 0;
        for (; i + kIntRows <= rows; i += kIntRows)
          int_dots<K, kIntRows>(k, a + i * lines, lines, b, kIntCols * k, sums + i * NR + j, NR);
        for (; i < rows; ++i) int_dots<K, 1>(k, a + i * lines, lines, b, kIntCols * k, sums + i * NR + j, NR);
      }
      if constexpr (K::kOffset)
        for (int j = 0; j < cols; ++j) e.correction[c0 + j] = -sums[m * NR + j];
      finish_tile(e, 0, int(m), c0, cols, sums, NR);
    }
  });
}

// Some more rows: a strip of the weight is packed, a part of k at a time, and multiplied while it is in L1.
template <class K> static void multiply_int_strips(const Int8Linear& g) {
  constexpr int NR = kTileCols<K>;
  constexpr int64_t kPart = 512, kPiece = 64;
  const int64_t m = g.y.sizes[0], n = g.y.sizes[1], k = g.a.sizes[1], units = ceil_div(k, K::kDepth),
                panels = ceil_div(m, kTileRows);
  auto first_row = [&](int64_t panel) { return m * panel / panels; };
  auto* a = static_cast<uint32_t*>(scratch(size_t(m * units) * sizeof(uint32_t) + kPackSlack, kSlotA));
  for (int64_t q = 0; q < panels; ++q)
    pack<typename K::Left>(a + first_row(q) * units, int(first_row(q + 1) - first_row(q)),
                           g.a.as<const int8_t>() + first_row(q) * k, k, 1, int(first_row(q + 1) - first_row(q)), k);
  const ScaledEpilogue e = scaled_epilogue<K>(g);
  const int8_t* weight = g.weight.as<const int8_t>();
  parallel_for(ceil_div(n, NR), ceil_div(kDotWork, k * NR * m), [&](int64_t begin, int64_t end) {
    alignas(64) uint32_t strip[kPart / K::kDepth * NR + kPackSlack / sizeof(uint32_t)];
    alignas(64) int32_t sums[kFewInts * NR];
    for (int64_t c0 = begin * NR; c0 < min64(n, end * NR); c0 += NR) {
      const int cols = int(min64(NR, n - c0));
      const char* ahead = reinterpret_cast<const char*>(weight + (c0 + NR) * k);  // the next strip's bytes
      for (int64_t k0 = 0; k0 < k; k0 += kPart) {
        const int64_t count = min64(kPart, k - k0), depth = ceil_div(count, K::kDepth);
        for (int64_t x = 0; x < count; x += kPiece) {
          for (int64_t i = 0; i < kPiece * NR / 2; i += 64, ahead += 64) __builtin_prefetch(ahead, 0, 2);
          pack<K>(strip + x / K::kDepth * NR, NR, weight + c0 * k + k0 + x, k, 1, cols, min64(kPiece, count - x));
        }
        if constexpr (K::kOffset) subtract_offset<K>(strip, cols, depth, e.correction + c0);
        for (int64_t q = 0; q < panels; ++q) {
          const int64_t r0 = first_row(q);
          const int rows = int(first_row(q + 1) - r0);
          tile_for<K, true>(rows, kTileVecs)(depth, a + r0 * units + k0 / K::kDepth * rows, 0, 0, strip, 0,
                                             sums + r0 * NR, NR, k0 ? sums + r0 * NR : nullptr, NR, ahead, 64);
          if (q == 0) ahead += 64 * depth;
        }
      }
      finish_tile(e, 0, int(m), c0, cols, sums, NR);
    }
  });
}

}  // namespace SF_ISA
}  // namespace sf
