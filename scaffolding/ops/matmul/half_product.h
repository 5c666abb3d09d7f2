// Products of float16 by tiles of bfloat16. Included only by *.amx.cpp files; everything lives in namespace sf::SF_ISA.
//
// The 11 bits of a float16 are two bfloat16 without a rest, x = x0 + x1, and all four products of parts are taken. Each
// is exact, so that only sums are rounded, as where float16 is widened to float32: the products that hold parts of
// 2^-8 have sums of their own (split_product.h). Infinities and NaN do not split.
#pragma once
#include "scaffolding/ops/matmul/split_product.h"

namespace sf {
namespace SF_ISA {

struct HalfRows {  // how rows of a are packed
  using Unit = SplitUnit<2>;
  static constexpr int kDepth = 32;
};
struct MulHalf : MulSplit<2> {
  using Left = HalfRows;
};

// A strip as float32 on the way to its parts: [w][k] where k runs along memory, else [k][w].
struct WideStrip {
  static constexpr int64_t kMost = 32 * 32 * MulHalf::kDepthBlock;
  alignas(64) float value[kMost];
  int64_t ws, ks;

  SF_INLINE WideStrip(const Half* src, int64_t src_ws, int64_t src_ks, int count, int64_t depth) {
    const bool along = src_ks == 1;
    const int64_t lines = along ? count : depth, length = along ? depth : count;
    const int64_t line_step = along ? src_ws : src_ks, step = along ? 1 : src_ws;
    ws = along ? length : 1, ks = along ? 1 : length;
    for (int64_t i = 0; i < lines; ++i) {
      const Half* from = src + i * line_step;
      float* to = value + i * length;
      if (step == 1)
        for (int64_t j = 0; j < length; j += kLanes) {
          const int n = length - j < kLanes ? int(length - j) : kLanes;
          store_n(to + j, load_n(from + j, n), n);
        }
      else
        for (int64_t j = 0; j < length; ++j) to[j] = to_float(from[j * step]);
    }
  }
};

template <> struct Packer<HalfRows, Half> {
  using Unit = SplitUnit<2>;
  [[gnu::noinline]] static void strided(Unit* dst, int width, const Half* src, int64_t ws, int64_t ks, int count,
                                        int64_t depth) {
    const WideStrip strip(src, ws, ks, count, depth);
    Packer<SplitRows<2>, float>::strided(dst, width, strip.value, strip.ws, strip.ks, count, depth);
  }
};
template <> struct Packer<MulHalf, Half> {
  using Unit = SplitUnit<2>;
  [[gnu::noinline]] static void strided(Unit* dst, int width, const Half* src, int64_t ws, int64_t ks, int count,
                                        int64_t depth) {
    const WideStrip strip(src, ws, ks, count, depth);
    Packer<MulSplit<2>, float>::strided(dst, width, strip.value, strip.ws, strip.ks, count, depth);
  }
};

template <> struct TileFor<MulHalf, true> {
  SF_INLINE static TileFn<MulHalf> find(int rows, int vecs) {
    if (rows > 16) return vecs == 1 ? &split_panel<2, 2, 1, true> : &split_panel<2, 2, 2, true>;
    return vecs == 1 ? &split_panel<2, 1, 1, true> : &split_panel<2, 1, 2, true>;
  }
};

}  // namespace SF_ISA
}  // namespace sf
