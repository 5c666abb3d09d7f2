// Matrix products of bfloat16 by the processor's tiles (backend/cpu/tiles.h), as arithmetic for packed_gemm.h.
// Included only by *.amx.cpp files; everything lives in namespace sf::SF_ISA.
//
// A unit of a packed operand is 64 bytes. Of a: the 32 values of k of one row, so that 16 units are a tile. Of b: the
// pairs along k of 16 columns, so that 16 units are a tile again, and a strip has two side by side. 32 rows x 2 vectors
// of sums take four tiles; each step of 32 values loads two tiles of either operand for four products of 16 cycles: 64
// cycles for 64 lines.
#pragma once
#include "scaffolding/backend/cpu/tile_lines.h"
#include "scaffolding/backend/cpu/tiles.h"
#include "scaffolding/ops/matmul/pack.h"

namespace sf {
namespace SF_ISA {

struct TileUnit {
  BFloat16 value[32];
};
struct TileRows {  // how rows of a are packed
  using Unit = TileUnit;
  static constexpr int kDepth = 32;
};
struct TileBlocks {  // of units of 64 bytes, whatever is in them
  using Scope = TileScope;
  static constexpr int kPanelRows = 32;
  static constexpr int64_t kRowStep = 32;
  SF_INLINE static int64_t panel(int64_t rows, int64_t q, int64_t) { return q * 32 < rows ? q * 32 : rows; }
  // A strip of b, 2 KB a unit, stays in L1 while panels of a come from L2.
  static constexpr int64_t kDepthBlock = 20, kDepthPart = 16;
  // Beside each other in an L2 of 2 MB, with the next strips of b on their way. From L3 a core reads 30 GB/s: a block
  // of sums of 320 x 480 takes 190 multiply-adds for each byte that comes. (Fetching the next block of a too, instead
  // of leaving it to the loads, costs 5 %.)
  static constexpr int64_t kSumBytes = 600 << 10;
  static constexpr int64_t kBlockBytes = 320 << 10;
};
struct MulTiles : TileBlocks {
  using Unit = TileUnit;
  using Acc = float;
  using Left = TileRows;
  static constexpr int kDepth = 32;
  template <int C, int A, int B> SF_INLINE static void dot() { tile_dot_bf16<C, A, B>(); }
  typedef float Vec __attribute__((vector_size(64)));
  // Rows that were staged (conv/staged_rows.h) take this much of L2 at most; of them each sixteen lie at one distance.
  static constexpr bool kStages = true;
  static constexpr int64_t kStageBytes = 800 << 10;
  static void staged_panel(int64_t depth, const BFloat16* first, const BFloat16* second, int64_t pixel, bool again,
                           const int32_t* steps, int rows, int vecs, const TileUnit* b, float* c, int64_t c_row,
                           const float* rest, int64_t rest_row, const char* ahead, int64_t ahead_step);
};

SF_INLINE void store_line(TileUnit* to, TileLine line) { std::memcpy(static_cast<void*>(to), &line, 64); }

// Lines of pairs along k of 16 columns <-> 16 rows of 32 values.
SF_INLINE void turn_pairs(TileLine (&r)[16]) { transpose<TileLine, 16>(r); }

// Values `ws` apart of one k.
SF_INLINE HalfLine gather_half(const BFloat16* from, int64_t ws, int n) {
  if (ws == 1) return load_half(from, n);
  HalfLine line{};
  for (int i = 0; i < n; ++i) line[i] = from[i * ws].bits;
  return line;
}

// Rows of a: dst[k / 32][width], each 32 values of a row as they lie.
template <> struct Packer<TileRows, BFloat16> {
  using Unit = TileUnit;
  [[gnu::noinline]] static void rows(Unit* dst, int width, const BFloat16* const* from, int count, int64_t depth) {
    for (int64_t k = 0; k < depth; k += 32, dst += width)
      for (int i = 0; i < count; ++i) store_line(dst + i, load_line(from[i] + k, depth - k));
  }
  [[gnu::noinline]] static void strided(Unit* dst, int width, const BFloat16* src, int64_t ws, int64_t ks, int count,
                                        int64_t depth) {
    if (ks == 1) {
      for (int64_t k = 0; k < depth; k += 32, dst += width)
        for (int i = 0; i < count; ++i) store_line(dst + i, load_line(src + i * ws + k, depth - k));
      return;
    }
    for (int64_t k = 0; k < depth; k += 32, dst += width)
      for (int w = 0; w < count; w += 16) {
        const int n = count - w < 16 ? count - w : 16;
        TileLine r[16];
        for (int p = 0; p < 16; ++p) {
          const int64_t at = k + 2 * p;
          r[p] = join_pairs(at < depth ? gather_half(src + at * ks + w * ws, ws, n) : HalfLine{},
                            at + 1 < depth ? gather_half(src + (at + 1) * ks + w * ws, ws, n) : HalfLine{});
        }
        turn_pairs(r);
        for (int i = 0; i < n; ++i) store_line(dst + w + i, r[i]);
      }
  }
};

// Columns of b: dst[k / 32][tile][16 pairs][16 columns], zero past `count` columns and past `depth`.
template <> struct Packer<MulTiles, BFloat16> {
  using Unit = TileUnit;
  // at(k, column, n): n values of one k
  template <class LineAt>
  SF_INLINE static void lines(Unit* dst, int width, int count, int64_t depth, const LineAt& at) {
    for (int64_t k = 0; k < depth; k += 32, dst += width)
      for (int t = 0; t < width; t += 16) {
        const int n = count - t < 0 ? 0 : count - t < 16 ? count - t : 16;
        for (int p = 0; p < 16; ++p) {
          const int64_t even = k + 2 * p;
          store_line(dst + t + p, join_pairs(even < depth ? at(even, t, n) : HalfLine{},
                                             even + 1 < depth ? at(even + 1, t, n) : HalfLine{}));
        }
      }
  }
  [[gnu::noinline]] static void rows(Unit* dst, int width, const BFloat16* const* from, int count, int64_t depth) {
    for (int64_t k = 0; k < depth; k += 32, dst += width)
      for (int t = 0; t < width; t += 16) {
        TileLine r[16];
        for (int i = 0; i < 16; ++i) r[i] = t + i < count ? load_line(from[t + i] + k, depth - k) : TileLine{};
        turn_pairs(r);
        for (int p = 0; p < 16; ++p) store_line(dst + t + p, r[p]);
      }
  }
  [[gnu::noinline]] static void columns(Unit* dst, int width, const BFloat16* const* from, int count, int64_t depth) {
    lines(dst, width, count, depth, [=](int64_t k, int t, int n) { return load_half(from[k] + t, n); });
  }
  [[gnu::noinline]] static void strided(Unit* dst, int width, const BFloat16* src, int64_t ws, int64_t ks, int count,
                                        int64_t depth) {
    if (ks == 1 && ws != 1) {
      const BFloat16* from[kTileCols<MulTiles>];
      for (int i = 0; i < count; ++i) from[i] = src + i * ws;
      return rows(dst, width, from, count, depth);
    }
    lines(dst, width, count, depth, [=](int64_t k, int t, int n) { return gather_half(src + k * ks + t * ws, ws, n); });
  }
};

// Where tiles of a lie at step k: packed, `rows` units a step; or staged, the same pixels under one tap after another.
template <class Unit> struct PackedTiles {
  const Unit* a;
  int64_t rows;
  static constexpr bool again = false;
  static constexpr int64_t stride = 64;  // bytes
  SF_INLINE const void* low(int64_t k) const { return a + k * rows; }
  SF_INLINE const void* high(int64_t k) const { return a + k * rows + 16; }
};
// kAgain: L1 holds them until the next tap.
template <bool kAgain> struct StagedTiles {
  static constexpr bool again = kAgain;
  const BFloat16 *first, *second;  // rows 0 and 16
  const int32_t* steps;
  int64_t stride;
  SF_INLINE const void* low(int64_t k) const { return first + steps[k]; }
  SF_INLINE const void* high(int64_t k) const { return second + steps[k]; }
};

template <int T, class Tiles> SF_INLINE void load_rows(const void* from, const Tiles& tiles) {
  if constexpr (Tiles::again) tile_load<T>(from, tiles.stride);
  else tile_stream<T>(from, tiles.stride);
}

// c[rows][NV vectors] = a * b, plus rest if given; `rows` is 16 * kHigh at most.
template <class K, int kHigh, int NV, class Tiles>
SF_INLINE void multiply_tiles(int64_t depth, const Tiles& a, int64_t rows, const typename K::Unit* b,
                              typename K::Acc* c, int64_t c_row, const typename K::Acc* rest, int64_t rest_row,
                              const char* ahead, int64_t ahead_step) {
  constexpr bool tall = kHigh == 2, wide = NV == 2;
  if (rest) {
    const int64_t row = rest_row * 4;
    tile_load<0>(rest, row);
    if constexpr (wide) tile_load<1>(rest + 16, row);
    if constexpr (tall) tile_load<2>(rest + 16 * rest_row, row);
    if constexpr (tall && wide) tile_load<3>(rest + 16 * rest_row + 16, row);
  } else {
    tile_zero<0>();
    if constexpr (wide) tile_zero<1>();
    if constexpr (tall) tile_zero<2>();
    if constexpr (tall && wide) tile_zero<3>();
  }
  for (int64_t k = 0; k < depth; ++k, b += 32) {
    tile_load<6>(b, 64);
    load_rows<4>(a.low(k), a);
    K::template dot<0, 4, 6>();
    if constexpr (wide) {
      tile_load<7>(b + 16, 64);
      K::template dot<1, 4, 7>();
    }
    if constexpr (tall) {
      load_rows<5>(a.high(k), a);
      K::template dot<2, 5, 6>();
      if constexpr (wide) K::template dot<3, 5, 7>();
    }
    for (int64_t at = 0; at < ahead_step; at += 64) __builtin_prefetch(ahead + at, 0, 2);
    ahead += ahead_step;
  }
  const int64_t row = c_row * 4;
  const int last = int(rows) - 16 * (kHigh - 1);
  if (tall || last == 16) {
    tile_store<0>(c, row);
    if constexpr (wide) tile_store<1>(c + 16, row);
  }
  if (tall && last == 16) {
    tile_store<2>(c + 16 * c_row, row);
    if constexpr (wide) tile_store<3>(c + 16 * c_row + 16, row);
  }
  if (last == 16) return;
  // What is past the last row belongs to somebody else.
  alignas(64) typename K::Acc whole[16 * 16 * NV];
  tile_store<kHigh == 2 ? 2 : 0>(whole, 64 * NV);
  if constexpr (wide) tile_store<kHigh == 2 ? 3 : 1>(whole + 16, 64 * NV);
  for (int i = 0; i < last; ++i) std::memcpy(c + (16 * (kHigh - 1) + i) * c_row, whole + i * 16 * NV, size_t(64 * NV));
}

template <class K, int kHigh, int NV>
[[gnu::noinline]] void tile_panel(int64_t depth, const typename K::Unit* a, int64_t rows, int64_t,
                                  const typename K::Unit* b, int64_t, typename K::Acc* c, int64_t c_row,
                                  const typename K::Acc* rest, int64_t rest_row, const char* ahead,
                                  int64_t ahead_step) {
  multiply_tiles<K, kHigh, NV>(depth, PackedTiles<typename K::Unit>{a, rows}, rows, b, c, c_row, rest, rest_row, ahead,
                               ahead_step);
}
template <bool kAgain, int kHigh, int NV>
[[gnu::noinline]] void staged_tiles(int64_t depth, const StagedTiles<kAgain>& a, int64_t rows, const TileUnit* b,
                                    float* c, int64_t c_row, const float* rest, int64_t rest_row, const char* ahead,
                                    int64_t ahead_step) {
  multiply_tiles<MulTiles, kHigh, NV>(depth, a, rows, b, c, c_row, rest, rest_row, ahead, ahead_step);
}
inline void MulTiles::staged_panel(int64_t depth, const BFloat16* first, const BFloat16* second, int64_t pixel,
                                   bool again, const int32_t* steps, int rows, int vecs, const TileUnit* b, float* c,
                                   int64_t c_row, const float* rest, int64_t rest_row, const char* ahead,
                                   int64_t ahead_step) {
  auto run = [&](auto holds) {
    const StagedTiles<holds.value> a{first, second, steps, 2 * pixel};
    const auto panel = rows > 16 ? (vecs == 1 ? &staged_tiles<holds.value, 2, 1> : &staged_tiles<holds.value, 2, 2>)
                                 : (vecs == 1 ? &staged_tiles<holds.value, 1, 1> : &staged_tiles<holds.value, 1, 2>);
    panel(depth, a, rows, b, c, c_row, rest, rest_row, ahead, ahead_step);
  };
  if (again) run(std::true_type{});
  else run(std::false_type{});
}

template <class K> struct PanelsOfTiles {
  SF_INLINE static TileFn<K> find(int rows, int vecs) {
    if (rows > 16) return vecs == 1 ? &tile_panel<K, 2, 1> : &tile_panel<K, 2, 2>;
    return vecs == 1 ? &tile_panel<K, 1, 1> : &tile_panel<K, 1, 2>;
  }
};
template <> struct TileFor<MulTiles, true> : PanelsOfTiles<MulTiles> {};

}  // namespace SF_ISA
}  // namespace sf
