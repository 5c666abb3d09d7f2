// Products of int8 by the processor's tiles, as arithmetic for packed_gemm.h: tile_product.h with four values where it
// has two. Included only by *.amx.cpp files; everything lives in namespace sf::SF_ISA.
//
// A unit of a packed operand is 64 bytes. Of a: the 64 values of k of one row. Of b: the fours along k of 16 columns.
#pragma once
#include "scaffolding/ops/int_mm/int8_lines.h"
#include "scaffolding/ops/matmul/tile_product.h"

namespace sf {
namespace SF_ISA {

struct ByteUnit {
  int8_t value[64];
};
struct ByteRows {  // how rows of a are packed
  using Unit = ByteUnit;
  static constexpr int kDepth = 64;
};
struct MulByteTiles : TileBlocks {
  using Unit = ByteUnit;
  using Acc = int32_t;
  using Left = ByteRows;
  static constexpr int kDepth = 64;
  // 2048 x 2048 x 2048: 3.1 ms, without 3.5; 4096: 28.5 and 29.9. From fewer rows b comes by too often.
  static constexpr int64_t kStayBytes = 1 << 20, kStayRows = 192;
  template <int C, int A, int B> SF_INLINE static void dot() { tile_dot_int8<C, A, B>(); }
  typedef uint32_t Vec __attribute__((vector_size(64)));
};

SF_INLINE void store_line(ByteUnit* to, Fours line) { std::memcpy(static_cast<void*>(to), &line, 64); }

// Rows of a: dst[k / 64][width], each 64 values of a row as they lie.
template <> struct Packer<ByteRows, int8_t> {
  using Unit = ByteUnit;
  [[gnu::noinline]] static void rows(Unit* dst, int width, const int8_t* const* from, int count, int64_t depth) {
    for (int64_t k = 0; k < depth; k += 64, dst += width)
      for (int i = 0; i < count; ++i) store_line(dst + i, load_line(from[i] + k, depth - k));
  }
  [[gnu::noinline]] static void strided(Unit* dst, int width, const int8_t* src, int64_t ws, int64_t ks, int count,
                                        int64_t depth) {
    if (ks == 1) {
      const int8_t* from[MulByteTiles::kPanelRows];
      for (int i = 0; i < count; ++i) from[i] = src + i * ws;
      return rows(dst, width, from, count, depth);
    }
    const Bytes from{src, ws, ks};
    for (int64_t k = 0; k < depth; k += 64, dst += width) {
      for (int w = 0; w < count; w += 16) {
        const int n = count - w < 16 ? count - w : 16;
        Fours r[16];
        for (int p = 0; p < 16; ++p) r[p] = from.fours(w, n, k + 4 * p, depth);
        transpose<Fours, 16>(r);
        for (int i = 0; i < n; ++i) store_line(dst + w + i, r[i]);
      }
    }
  }
};

// Columns of b: dst[k / 64][tile][16 fours][16 columns], zero past `count` columns and past `depth`.
template <> struct Packer<MulByteTiles, int8_t> {
  using Unit = ByteUnit;
  [[gnu::noinline]] static void rows(Unit* dst, int width, const int8_t* const* from, int count, int64_t depth) {
    for (int64_t k = 0; k < depth; k += 64, dst += width)
      for (int w = 0; w < width; w += 16) {
        Fours r[16];
        turned(from + w, count - w < 0 ? 0 : count - w < 16 ? count - w : 16, k, depth, r);
        for (int p = 0; p < 16; ++p) store_line(dst + w + p, r[p]);
      }
  }
  [[gnu::noinline]] static void strided(Unit* dst, int width, const int8_t* src, int64_t ws, int64_t ks, int count,
                                        int64_t depth) {
    if (ks == 1 && ws != 1) {
      const int8_t* from[kTileCols<MulByteTiles>];
      for (int i = 0; i < count; ++i) from[i] = src + i * ws;
      return rows(dst, width, from, count, depth);
    }
    const Bytes from{src, ws, ks};
    for (int64_t k = 0; k < depth; k += 64, dst += width)
      for (int w = 0; w < width; w += 16) {
        const int n = count - w < 0 ? 0 : count - w < 16 ? count - w : 16;
        for (int p = 0; p < 16; ++p) store_line(dst + w + p, from.fours(w, n, k + 4 * p, depth));
      }
  }
};

// Whether a product is worth padding to whole tiles.
SF_INLINE bool fills_byte_tiles(int64_t m, int64_t n, int64_t k) {
  constexpr int64_t kLeastWork = 1 << 15;  // multiply-adds
  return m >= 5 && n >= 8 && k >= 16 && m * n * k >= kLeastWork;
}

template <> struct TileFor<MulByteTiles, true> : PanelsOfTiles<MulByteTiles> {};

}  // namespace SF_ISA
}  // namespace sf
