// Products of float32 by tiles of bfloat16: an operand is split into parts of 8 bits, x = x0 + x1 + x2, and products of
// parts are summed. Included only by *.amx.cpp files; everything lives in namespace sf::SF_ISA.
//
// Three parts hold all 24 bits of a float32. Of the nine products the six largest are taken: the three left out are at
// most 2^-24 of the result's terms. x0 * y0 has sums of its own, so that the others round only what is 2^-8 of it; and
// tiles add pairs before they round, so that there are half as many roundings as in a chain of multiply-adds. Measured
// against float64 the error is below that of such a chain (split_product_test.cpp).
// What does not split without a rest (denormals, infinities, NaN, 3.4e38) is found while it is packed: note_rest().
#pragma once
#include "scaffolding/backend/precision.h"
#include "scaffolding/ops/matmul/tile_product.h"

namespace sf {
namespace SF_ISA {

// 32 values along k of one row or half a column pair, part after part.
template <int kParts> struct SplitUnit { BFloat16 value[kParts][32]; };
template <int kParts> struct SplitRows {  // how rows of a are packed: [k / 32][part][row], 64 bytes each
  using Unit = SplitUnit<kParts>;
  static constexpr int kDepth = 32;
};
// Whether the calling thread packed something that does not split without a rest since this was last asked.
inline thread_local bool split_left_rest = false;
SF_INLINE bool take_rest() {
  const bool rest = split_left_rest;
  split_left_rest = false;
  return rest;
}

template <int kParts> struct MulSplit : TileBlocks {
  using Unit = SplitUnit<kParts>;
  using Acc = float;
  using Left = SplitRows<kParts>;
  static bool take_rest() { return sf::SF_ISA::take_rest(); }
  static constexpr int kDepth = 32;
  static constexpr int64_t kDepthBlock = 8, kDepthPart = 6;
  static constexpr int64_t kSumBytes = 640 << 10;
  static constexpr int64_t kBlockBytes = 300 << 10;
  typedef float Vec __attribute__((vector_size(64)));
};

typedef float FloatLine __attribute__((vector_size(64)));
typedef int32_t IntLine __attribute__((vector_size(64)));

SF_INLINE FloatLine load_floats(const float* from, int64_t n) {
#if defined(__AVX512F__)
  return (FloatLine)_mm512_maskz_loadu_ps(n >= 16 ? __mmask16(-1) : __mmask16((1u << (n < 0 ? 0 : n)) - 1), from);
#else
  FloatLine line{};
  if (n > 0) std::memcpy(&line, from, size_t(n >= 16 ? 64 : 4 * n));
  return line;
#endif
}
// To the nearest bfloat16, as the upper half of a float32; what would be a denormal becomes 0, as tiles read it.
SF_INLINE IntLine upper_part(FloatLine x) {
#if defined(__AVX512BF16__)
  return (IntLine)_mm512_slli_epi32(_mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh((__m512)x)), 16);
#else
  TileLine u = (TileLine)x;
  TileLine rounded = (u + 0x7fff + ((u >> 16) & 1)) & 0xffff0000u;
  return (IntLine)(rounded & (TileLine)((rounded & 0x7f800000u) != 0));
#endif
}

// 16 numbers in parts; `rest` collects what is left over.
template <int kParts> struct Parts {
  IntLine part[kParts];  // as upper halves
};
template <int kParts> SF_INLINE Parts<kParts> split(FloatLine x, IntLine& rest) {
  Parts<kParts> parts;
  FloatLine left = x;
  for (int i = 0; i < kParts; ++i) {
    parts.part[i] = upper_part(left);
    left = left - (FloatLine)parts.part[i];
  }
  // Two parts always leave something; a NaN compares unequal.
  if constexpr (kParts == 3) rest |= (IntLine)(left != FloatLine{});
  else {
    const FloatLine size = (FloatLine)((IntLine)x & 0x7fffffff), over = (FloatLine)((IntLine)left & 0x7fffffff);
    rest |= ~(IntLine)(over <= size * (kParts == 2 ? 3.1e-5f : 7.9e-3f));
  }
  return parts;
}
SF_INLINE void note_rest(IntLine rest) {
#if defined(__AVX512F__)
  if (_mm512_test_epi32_mask((__m512i)rest, (__m512i)rest)) split_left_rest = true;
#else
  for (int i = 0; i < 16; ++i)
    if (rest[i]) split_left_rest = true;
#endif
}
// Neighbours along k in one 32-bit unit: from two lines of 16 numbers in order (a row), or even and odd k (columns).
SF_INLINE TileLine in_order(IntLine first, IntLine second) {
#if defined(__AVX512BW__)
  const __m512i odd = _mm512_set_epi16(63, 61, 59, 57, 55, 53, 51, 49, 47, 45, 43, 41, 39, 37, 35, 33, 31, 29, 27, 25,
                                       23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
  return (TileLine)_mm512_permutex2var_epi16((__m512i)first, odd, (__m512i)second);
#else
  TileLine line;
  for (int i = 0; i < 16; ++i) {
    const IntLine& from = i < 8 ? first : second;
    line[i] = uint32_t(from[2 * i % 16]) >> 16 | (uint32_t(from[2 * i % 16 + 1]) & 0xffff0000u);
  }
  return line;
#endif
}
SF_INLINE TileLine pair_up(IntLine even, IntLine odd) { return ((TileLine)even >> 16) | (TileLine)odd; }

template <int kParts> SF_INLINE BFloat16* line_of(SplitUnit<kParts>* block, int width, int part, int i) {
  return reinterpret_cast<BFloat16*>(block) + (int64_t(part) * width + i) * 32;
}
SF_INLINE void store_line(BFloat16* to, TileLine line) { std::memcpy(static_cast<void*>(to), &line, 64); }

template <int kParts, class RowOf>
SF_INLINE void split_rows(SplitUnit<kParts>* dst, int width, int count, int64_t depth, const RowOf& row) {
  IntLine rest{};
  for (int64_t k = 0; k < depth; k += 32, dst += width)
    for (int i = 0; i < count; ++i) {
      const float* from = row(i) + k;
      const auto low = split<kParts>(load_floats(from, depth - k), rest),
                 high = split<kParts>(load_floats(from + 16, depth - k - 16), rest);
      for (int p = 0; p < kParts; ++p) store_line(line_of(dst, width, p, i), in_order(low.part[p], high.part[p]));
    }
  note_rest(rest);
}
// Lines at(k) of `n` numbers side by side at each k, as pairs along k: 16 lines for each part.
template <int kParts, class LineAt>
SF_INLINE void split_pairs(TileLine (&pairs)[kParts][16], int64_t k, int64_t depth, IntLine& rest, const LineAt& at) {
  for (int q = 0; q < 16; ++q) {
    const int64_t even = k + 2 * q;
    const auto low = split<kParts>(even < depth ? at(even) : FloatLine{}, rest),
               high = split<kParts>(even + 1 < depth ? at(even + 1) : FloatLine{}, rest);
    for (int p = 0; p < kParts; ++p) pairs[p][q] = pair_up(low.part[p], high.part[p]);
  }
}
SF_INLINE FloatLine gather_floats(const float* from, int64_t stride, int n) {
  if (stride == 1) return load_floats(from, n);
  FloatLine line{};
  for (int i = 0; i < n; ++i) line[i] = from[i * stride];
  return line;
}
// Rows of a whose numbers are `ks` apart.
template <int kParts>
SF_INLINE void split_across(SplitUnit<kParts>* dst, int width, const float* src, int64_t ws, int64_t ks, int count,
                            int64_t depth) {
  IntLine rest{};
  TileLine pairs[kParts][16];
  for (int64_t k = 0; k < depth; k += 32, dst += width)
    for (int w = 0; w < count; w += 16) {
      const int n = count - w < 16 ? count - w : 16;
      split_pairs<kParts>(pairs, k, depth, rest,
                          [&](int64_t at) { return gather_floats(src + at * ks + w * ws, ws, n); });
      for (int p = 0; p < kParts; ++p) {
        turn_pairs(pairs[p]);
        for (int i = 0; i < n; ++i) store_line(line_of(dst, width, p, w + i), pairs[p][i]);
      }
    }
  note_rest(rest);
}
// Columns of b: [k / 32][half strip][part][16 pairs].
template <int kParts, class LineAt>
SF_INLINE void split_columns(SplitUnit<kParts>* dst, int width, int count, int64_t depth, const LineAt& at) {
  IntLine rest{};
  TileLine pairs[kParts][16];
  for (int64_t k = 0; k < depth; k += 32, dst += width)
    for (int t = 0; t < width; t += 16) {
      const int n = count - t < 0 ? 0 : count - t < 16 ? count - t : 16;
      split_pairs<kParts>(pairs, k, depth, rest, [&](int64_t k_at) { return at(k_at, t, n); });
      for (int p = 0; p < kParts; ++p)
        for (int q = 0; q < 16; ++q) store_line(line_of(dst + t, 16, p, q), pairs[p][q]);
    }
  note_rest(rest);
}
// Columns of b whose numbers lie along k.
template <int kParts>
SF_INLINE void split_turned(SplitUnit<kParts>* dst, int width, const float* const* rows, int count, int64_t depth) {
  IntLine rest{};
  TileLine pairs[kParts][16];
  for (int64_t k = 0; k < depth; k += 32, dst += width)
    for (int t = 0; t < width; t += 16) {
      for (int i = 0; i < 16; ++i) {
        const bool there = t + i < count;
        const float* from = there ? rows[t + i] + k : nullptr;
        const auto low = split<kParts>(there ? load_floats(from, depth - k) : FloatLine{}, rest),
                   high = split<kParts>(there ? load_floats(from + 16, depth - k - 16) : FloatLine{}, rest);
        for (int p = 0; p < kParts; ++p) pairs[p][i] = in_order(low.part[p], high.part[p]);
      }
      for (int p = 0; p < kParts; ++p) {
        turn_pairs(pairs[p]);
        for (int q = 0; q < 16; ++q) store_line(line_of(dst + t, 16, p, q), pairs[p][q]);
      }
    }
  note_rest(rest);
}

// packed_gemm.h's words for these.
template <int kParts> struct Packer<SplitRows<kParts>, float> {
  using Unit = SplitUnit<kParts>;
  [[gnu::noinline]] static void rows(Unit* dst, int width, const float* const* from, int count, int64_t depth) {
    split_rows<kParts>(dst, width, count, depth, [=](int i) { return from[i]; });
  }
  [[gnu::noinline]] static void strided(Unit* dst, int width, const float* src, int64_t ws, int64_t ks, int count,
                                        int64_t depth) {
    if (ks == 1) split_rows<kParts>(dst, width, count, depth, [=](int i) { return src + i * ws; });
    else split_across<kParts>(dst, width, src, ws, ks, count, depth);
  }
};
template <int kParts> struct Packer<MulSplit<kParts>, float> {
  using Unit = SplitUnit<kParts>;
  [[gnu::noinline]] static void rows(Unit* dst, int width, const float* const* from, int count, int64_t depth) {
    split_turned<kParts>(dst, width, from, count, depth);
  }
  [[gnu::noinline]] static void columns(Unit* dst, int width, const float* const* from, int count, int64_t depth) {
    split_columns<kParts>(dst, width, count, depth,
                          [=](int64_t k, int t, int n) { return load_floats(from[k] + t, n); });
  }
  [[gnu::noinline]] static void strided(Unit* dst, int width, const float* src, int64_t ws, int64_t ks, int count,
                                        int64_t depth) {
    if (ks == 1 && ws != 1) {
      const float* from[kTileCols<MulTiles>];
      for (int i = 0; i < count; ++i) from[i] = src + i * ws;
      return rows(dst, width, from, count, depth);
    }
    split_columns<kParts>(dst, width, count, depth,
                          [=](int64_t k, int t, int n) { return gather_floats(src + k * ks + t * ws, ws, n); });
  }
};

// One step of 32 values of a 32 x 16 block: twelve products for nine loads, each part once, on four tiles of sums:
// x0 y0 for either half of the rows, and the rest.
// kAll: x1 y1 too (half_product.h).
template <int kParts, bool kTall, bool kAll>
SF_INLINE void split_step(const BFloat16* a, int64_t rows, const BFloat16* b) {
  auto load_a = [&](int part) __attribute__((always_inline)) {
    tile_stream<4>(a + part * rows * 32, 64);
    if constexpr (kTall) tile_stream<5>(a + (part * rows + 16) * 32, 64);
  };
  tile_load<6>(b, 64);
  if constexpr (kParts > 2) {
    load_a(2);
    tile_dot_bf16<2, 4, 6>();
    if constexpr (kTall) tile_dot_bf16<3, 5, 6>();
  }
  if constexpr (kParts > 1) {
    load_a(1);
    tile_dot_bf16<2, 4, 6>();
    if constexpr (kTall) tile_dot_bf16<3, 5, 6>();
    tile_load<7>(b + 16 * 32, 64);
  }
  if constexpr (kAll) {
    tile_dot_bf16<2, 4, 7>();
    if constexpr (kTall) tile_dot_bf16<3, 5, 7>();
  }
  if constexpr (kParts > 2) {
    tile_dot_bf16<2, 4, 7>();
    if constexpr (kTall) tile_dot_bf16<3, 5, 7>();
  }
  load_a(0);
  tile_dot_bf16<0, 4, 6>();
  if constexpr (kTall) tile_dot_bf16<1, 5, 6>();
  if constexpr (kParts > 1) {
    tile_dot_bf16<2, 4, 7>();
    if constexpr (kTall) tile_dot_bf16<3, 5, 7>();
  }
  if constexpr (kParts > 2) {
    tile_load<6>(b + 2 * 16 * 32, 64);
    tile_dot_bf16<2, 4, 6>();
    if constexpr (kTall) tile_dot_bf16<3, 5, 6>();
  }
}

// The same of a 16 x 32 block, each sum in the same order: tiles of b instead of a come in twos.
template <int kParts, bool kAll> SF_INLINE void split_wide_step(const BFloat16* a, int64_t rows, const BFloat16* b) {
  const BFloat16* b1 = b + 16 * kParts * 32;
  if constexpr (kParts > 2) tile_stream<4>(a + 2 * rows * 32, 64);
  if constexpr (kParts > 1) tile_stream<5>(a + rows * 32, 64);
  tile_load<6>(b, 64);
  if constexpr (kParts > 2) tile_dot_bf16<2, 4, 6>();
  if constexpr (kParts > 1) tile_dot_bf16<2, 5, 6>();
  tile_load<7>(b1, 64);
  if constexpr (kParts > 2) tile_dot_bf16<3, 4, 7>();
  if constexpr (kParts > 1) tile_dot_bf16<3, 5, 7>();
  tile_stream<4>(a, 64);
  tile_dot_bf16<0, 4, 6>();
  tile_dot_bf16<1, 4, 7>();
  if constexpr (kParts > 1) {
    tile_load<6>(b + 16 * 32, 64);
    if constexpr (kAll || kParts > 2) tile_dot_bf16<2, 5, 6>();
    tile_dot_bf16<2, 4, 6>();
    tile_load<7>(b1 + 16 * 32, 64);
    if constexpr (kAll || kParts > 2) tile_dot_bf16<3, 5, 7>();
    tile_dot_bf16<3, 4, 7>();
  }
  if constexpr (kParts > 2) {
    tile_load<6>(b + 2 * 16 * 32, 64);
    tile_dot_bf16<2, 4, 6>();
    tile_load<7>(b1 + 2 * 16 * 32, 64);
    tile_dot_bf16<3, 4, 7>();
  }
}

// between(): what else there is to do, a little of it after each step; the tiles' unit works meanwhile.
template <int kParts, int kHigh, int NV, bool kAll, class Between>
SF_INLINE void split_panel_and(int64_t depth, const SplitUnit<kParts>* a, int64_t rows, const SplitUnit<kParts>* b,
                               float* c, int64_t c_row, const float* rest, int64_t rest_row, const Between& between) {
  constexpr bool tall = kHigh == 2, wide = !tall && NV == 2;
  constexpr int kTurns = wide ? 1 : NV;
  alignas(64) float sum[2][2 * 16 * 16];
  for (int j = 0; j < kTurns; ++j) {
    tile_zero<0>();
    tile_zero<2>();
    if constexpr (tall || wide) tile_zero<1>(), tile_zero<3>();
    const SplitUnit<kParts>*ak = a, *bk = b + 16 * j;
    for (int64_t k = 0; k < depth; ++k, ak += rows, bk += 32) {
      if constexpr (wide) split_wide_step<kParts, kAll>(ak->value[0], rows, bk->value[0]);
      else split_step<kParts, tall, kAll>(ak->value[0], rows, bk->value[0]);
      between();
    }
    tile_store<0>(sum[0], 64);
    tile_store<2>(sum[1], 64);
    if constexpr (tall || wide) tile_store<1>(sum[0] + 256, 64), tile_store<3>(sum[1] + 256, 64);
    // Each block of k has sums of its own: of many positive terms, those of the whole would round six times as often.
    auto add_up = [&](int64_t i, int column, int64_t at) __attribute__((always_inline)) {
      const vf block = load(sum[0] + at) + load(sum[1] + at);
      store(c + i * c_row + column, rest ? load(rest + i * rest_row + column) + block : block);
    };
    for (int64_t i = 0; i < rows; ++i) {
      add_up(i, 16 * j, 16 * i);
      if constexpr (wide) add_up(i, 16, 256 + 16 * i);
    }
  }
}

template <int kParts, int kHigh, int NV, bool kAll = false>
[[gnu::noinline]] void split_panel(int64_t depth, const SplitUnit<kParts>* a, int64_t rows, int64_t,
                                   const SplitUnit<kParts>* b, int64_t, float* c, int64_t c_row, const float* rest,
                                   int64_t rest_row, const char* ahead, int64_t ahead_step) {
  constexpr int kTurns = kHigh == 1 ? 1 : NV;
  split_panel_and<kParts, kHigh, NV, kAll>(
      depth, a, rows, b, c, c_row, rest, rest_row, [&]() __attribute__((always_inline)) {
        for (int64_t at = 0; at < ahead_step / kTurns; at += 64) __builtin_prefetch(ahead + at, 0, 2);
        ahead += ahead_step / kTurns;
      });
}

template <int kParts> struct TileFor<MulSplit<kParts>, true> {
  SF_INLINE static TileFn<MulSplit<kParts>> find(int rows, int vecs) {
    if (rows > 16) return vecs == 1 ? &split_panel<kParts, 2, 1> : &split_panel<kParts, 2, 2>;
    return vecs == 1 ? &split_panel<kParts, 1, 1> : &split_panel<kParts, 1, 2>;
  }
};

// call(arithmetic, &rest) for the precision that float32 is to have; where something was left over, once more as it is.
template <class Call> SF_INLINE void in_parts(const Call& call) {
  bool rest = false;
  switch (float32_matmul_precision()) {
    case Float32Precision::Highest: call(MulSplit<3>{}, &rest); break;
    case Float32Precision::High: call(MulSplit<2>{}, &rest); break;
    case Float32Precision::Medium: call(MulSplit<1>{}, &rest); break;
  }
  if (rest) call(MulF32{}, nullptr);
}

}  // namespace SF_ISA
}  // namespace sf
