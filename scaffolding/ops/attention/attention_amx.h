// What forward and backward share on the processor's tiles: products of packed tiles and the four ways to pack.
// Included only by attention*.amx.cpp; everything lives in namespace sf::SF_ISA.
//
// A product is C[16 R][16 C] += A B, summed in steps of 32. A tile of A is 16 rows x 32 values along the sum; a tile of
// B is 16 pairs of neighbours along the sum x 16 columns. Packed operands are lists of tiles, [rows / 16][steps]:
//   from rows of a tensor            rows stay rows                    the tensor's columns become rows
//   A                                pack_a                            pack_a_turned
//   B (its columns)                  pack_b                            pack_b_turned
// where the sum runs along the row (pack_a, pack_b) or over the rows (the turned ones). What is past the end is zero.
#pragma once
#include "scaffolding/backend/cpu/tile_lines.h"
#include "scaffolding/backend/cpu/tiles.h"
#include "scaffolding/ops/attention/attention_problem.h"

namespace sf {
namespace SF_ISA {

inline constexpr int64_t kStep = 32;       // values along a sum that one tile holds
inline constexpr int64_t kTileSize = 512;  // values of a tile

SF_INLINE constexpr int64_t tiles_of(int64_t n) { return (n + 15) / 16; }
SF_INLINE constexpr int64_t steps_of(int64_t n) { return (n + kStep - 1) / kStep; }

SF_INLINE void store_line(BFloat16* to, TileLine line) { std::memcpy(static_cast<void*>(to), &line, 64); }
SF_INLINE void store_turned(BFloat16* to, vf_raw (&r)[16]) {
  transpose(r);
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) store_line(to + i * kStep, (TileLine)r[i]);
}

template <class Row> SF_INLINE void pack_a(BFloat16* dst, const Row& row, int64_t count, int64_t rows, int64_t length) {
  const int64_t steps = steps_of(length);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t s = 0; s < steps; ++s)
      store_line(dst + (i / 16 * steps + s) * kTileSize + i % 16 * kStep,
                 i < count ? load_line(row(i) + s * kStep, length - s * kStep) : TileLine{});
}

template <class Row>
SF_INLINE void pack_b(BFloat16* dst, const Row& row, int64_t count, int64_t rows, int64_t length, bool negate) {
  const TileLine signs = TileLine{} + (negate ? 0x80008000u : 0u);
  for (int64_t i0 = 0; i0 < rows; i0 += 16)
    for (int64_t e = 0; e < length; e += kStep, dst += kTileSize) {
      vf_raw r[16];
      for (int i = 0; i < 16; ++i)
        r[i] = i0 + i < count ? (vf_raw)(load_line(row(i0 + i) + e, length - e) ^ signs) : vf_raw{};
      store_turned(dst, r);
    }
}

// 16 pairs: element e on of rows `at` and `at` + 1, of which those below `count` exist.
template <class Row> SF_INLINE TileLine row_pairs(const Row& row, int64_t at, int64_t count, int64_t e, int64_t n) {
  return join_pairs(at < count ? load_half(row(at) + e, n) : HalfLine{},
                    at + 1 < count ? load_half(row(at + 1) + e, n) : HalfLine{});
}
template <class Row> SF_INLINE void pack_a_turned(BFloat16* dst, const Row& row, int64_t count, int64_t length) {
  const int64_t steps = steps_of(count);
  for (int64_t s = 0; s < steps; ++s)
    for (int64_t e = 0; e < length; e += 16) {
      vf_raw r[16];
      for (int p = 0; p < 16; ++p) r[p] = (vf_raw)row_pairs(row, s * kStep + 2 * p, count, e, length - e);
      store_turned(dst + (e / 16 * steps + s) * kTileSize, r);
    }
}
template <class Row> SF_INLINE void pack_b_turned(BFloat16* dst, const Row& row, int64_t count, int64_t length) {
  const int64_t steps = steps_of(count);
  for (int64_t s = 0; s < steps; ++s)
    for (int64_t e = 0; e < length; e += 16)
      for (int p = 0; p < 16; ++p)
        store_line(dst + (e / 16 * steps + s) * kTileSize + p * kStep,
                   row_pairs(row, s * kStep + 2 * p, count, e, length - e));
}

// A list of tiles: distances between two of the product's R or C tiles, between two steps, and between lines of a tile.
struct Tiles {
  const void* at;
  int64_t tile, step, line;
  SF_INLINE Tiles from(int64_t t, int64_t s = 0) const {
    return {static_cast<const char*>(at) + t * tile + s * step, tile, step, line};
  }
};
SF_INLINE Tiles packed_tiles(const BFloat16* at, int64_t steps) { return {at, steps * 1024, 1024, 64}; }

// Registers 0 .. R C - 1 are sums: four of them, of whatever shape, keep the unit for products busy.
template <int R, int C, bool kAdd>
SF_INLINE void tile_products(float* c, int64_t ldc, const Tiles& a, const Tiles& b, int64_t depth) {
  static_assert((R <= 2 && C == 2) || (R <= 4 && R != 3 && C == 1));
  const int64_t line = ldc * 4;
  auto sums = [&](auto&& f) {
    f(std::integral_constant<int, 0>{}, c);
    if constexpr (C == 2) f(std::integral_constant<int, 1>{}, c + 16);
    if constexpr (R > 1) f(std::integral_constant<int, C>{}, c + 16 * ldc);
    if constexpr (R == 2 && C == 2) f(std::integral_constant<int, 3>{}, c + 16 * ldc + 16);
    if constexpr (R == 4) f(std::integral_constant<int, 2>{}, c + 32 * ldc);
    if constexpr (R == 4) f(std::integral_constant<int, 3>{}, c + 48 * ldc);
  };
  sums([&](auto t, float* at) {
    if constexpr (kAdd) tile_load<t.value>(at, line);
    else tile_zero<t.value>();
  });
  const char *x = static_cast<const char*>(a.at), *y = static_cast<const char*>(b.at);
  for (int64_t s = 0; s < depth; ++s, x += a.step, y += b.step) {
    tile_load<6>(y, b.line);
    tile_load<4>(x, a.line), tile_dot_bf16<0, 4, 6>();
    if constexpr (C == 2) tile_load<7>(y + b.tile, b.line), tile_dot_bf16<1, 4, 7>();
    if constexpr (R > 1) tile_load<5>(x + a.tile, a.line), tile_dot_bf16<C, 5, 6>();
    if constexpr (R == 2 && C == 2) tile_dot_bf16<3, 5, 7>();
    if constexpr (R == 4) {
      tile_load<4>(x + 2 * a.tile, a.line), tile_dot_bf16<2, 4, 6>();
      tile_load<5>(x + 3 * a.tile, a.line), tile_dot_bf16<3, 5, 6>();
    }
  }
  sums([&](auto t, float* at) { tile_store<t.value>(at, line); });
}

// All `tiles` tiles of a against C of b: c[16 tiles][ldc].
template <int C, bool kAdd>
SF_INLINE void tile_columns(float* c, int64_t ldc, const Tiles& a, int64_t tiles, const Tiles& b, int64_t depth) {
  constexpr int kTall = 4 / C;
  int64_t t = 0;
  for (; t + kTall <= tiles; t += kTall) tile_products<kTall, C, kAdd>(c + t * 16 * ldc, ldc, a.from(t), b, depth);
  if constexpr (kTall == 4)
    if (t + 2 <= tiles) tile_products<2, C, kAdd>(c + t * 16 * ldc, ldc, a.from(t), b, depth), t += 2;
  if (t < tiles) tile_products<1, C, kAdd>(c + t * 16 * ldc, ldc, a.from(t), b, depth);
}

// All `columns` tiles of b too: c[16 rows][ldc].
template <bool kAdd>
SF_INLINE void tile_matrix(float* c, int64_t ldc, const Tiles& a, int64_t rows, const Tiles& b, int64_t columns,
                           int64_t depth) {
  int64_t t = 0;
  for (; t + 2 <= columns; t += 2) tile_columns<2, kAdd>(c + 16 * t, ldc, a, rows, b.from(t), depth);
  if (t < columns) tile_columns<1, kAdd>(c + 16 * t, ldc, a, rows, b.from(t), depth);
}

// bfloat16 throughout, and so many scores that whole tiles are not mostly padding. A single query of 1024 keys is
// faster on tiles, and 32 x 32; 16 x 16 is not.
template <class Args> SF_INLINE bool fills_tiles(const Args& a) {
  const Problem p(a);
  return a.q.dtype == kBFloat16 && p.Lk >= 16 && p.rows() * p.Lk >= 1024 && p.D >= 8 && p.Dv >= 8;
}

}  // namespace SF_ISA
}  // namespace sf
