// One matrix product from packed operands, and the shape of its blocks.
// Included only by *.cpu.cpp files; everything lives in namespace sf::SF_ISA.
//
// Data flow: all of b is packed once into strips of kTileCols columns, cut along k into blocks (shared by all threads,
// in L3 or memory). A thread takes a block of rows of a, packs them for one k block (L2, kBlockBytes), and for each
// strip of b (L2, 128 bytes per k) runs down its row panels; the next strip is prefetched meanwhile (n = 4096 on an
// Intel core with 10 GB/s from L3: 79 % of peak without, 94 % with). Sums of all but the last k block rest in scratch,
// tile after tile: in c itself, rows a power of two apart would fall on the same cache sets (82 % of peak at n = 4096
// against 90 %).
#pragma once
#include "scaffolding/core/parallel.h"
#include "scaffolding/core/scratch.h"
#include "scaffolding/ops/matmul/epilogue.h"
#include "scaffolding/ops/matmul/pack.h"

namespace sf {
namespace SF_ISA {

// Slots of sf::scratch taken by matrix products; convolutions nest products and take the next ones.
enum ScratchSlot { kSlotA, kSlotB, kSlotSums, kSlotConvInput, kSlotConvOutput, kSlotConvWeight };

inline constexpr int64_t kDepthBlock = 1024;  // units of k: a strip of b is at most 128 KB, from L2 as fast as from L1
inline constexpr int64_t kDepthPart = 704;    // what longer products are cut into: at n = 2048 2 % faster than 1024
inline constexpr int64_t kRowBlock = 8 * kTileRows;
// A packed block of a: beside two strips of b and the lines of c it keeps its place in an L2 of 1 MB (450 KB:
// 1-2 % slower on Zen 5).
inline constexpr int64_t kBlockBytes = kLanes == 16 ? 320 << 10 : kRowBlock * kDepthBlock * 4;
inline constexpr int64_t kPackedBytes = int64_t(64) << 20;  // wider b are packed and multiplied in parts

// What multiply_packed() multiplies: sizes, an epilogue, and how to pack a part of either operand. This one reads two
// plain matrices; convolutions bring their own (conv_product.h).
template <class K, class S> struct Product {
  using Src = S;
  int64_t m, n, k;
  const Src* a;
  int64_t a_m, a_k;  // strides, in elements
  const Src* b;
  int64_t b_k, b_n;
  Epilogue e;

  // Rows row.. of a, values k0.. of k, as a strip of that many rows.
  SF_INLINE void pack_a(typename K::Unit* dst, int64_t row, int rows, int64_t k0, int64_t values) const {
    pack<K>(dst, rows, a + row * a_m + k0 * a_k, a_m, a_k, rows, values);
  }
  // Columns col.. of b as a strip of kTileCols columns.
  SF_INLINE void pack_b(typename K::Unit* dst, int64_t col, int cols, int64_t k0, int64_t values) const {
    pack<K>(dst, kTileCols<K>, b + k0 * b_k + col * b_n, b_n, b_k, cols, values);
  }
};

SF_INLINE int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
SF_INLINE int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }
SF_INLINE int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }

template <class K> struct PackedShape {
  int64_t k, units, blocks, block_units, strips;
  SF_INLINE PackedShape(int64_t k_, int64_t n) : k(k_), units(ceil_div(k_, K::kDepth)) {
    blocks = units <= kDepthBlock ? 1 : ceil_div(units, kDepthPart);
    block_units = max64(1, ceil_div(units, blocks));
    blocks = max64(1, ceil_div(units, block_units));
    strips = ceil_div(n, kTileCols<K>);
  }
  SF_INLINE int64_t depth(int64_t block) const { return min64(units - block * block_units, block_units); }
  SF_INLINE int64_t offset(int64_t block, int64_t strip) const {
    return (block * block_units * strips + strip * depth(block)) * kTileCols<K>;
  }
  SF_INLINE size_t bytes() const {
    return size_t(units * strips) * kTileCols<K> * sizeof(typename K::Unit) + kPackSlack;
  }
};

template <class K, class P>
void pack_b(const P& p, const PackedShape<K>& s, typename K::Unit* dst, int64_t block, int64_t strip) {
  const int64_t k0 = block * s.block_units * K::kDepth, depth = min64(p.k - k0, s.depth(block) * K::kDepth);
  const int64_t c0 = strip * kTileCols<K>;
  p.pack_b(dst + s.offset(block, strip), c0, int(min64(p.n - c0, kTileCols<K>)), k0, depth);
}

template <class K> inline constexpr DType kAccType = sizeof(typename K::Acc) == 8 ? kFloat64 : kFloat32;

// Rows m0..m1 and strips s0..s1 of the product. `bp` is b packed by pack_b. Runs on the calling thread.
template <class K, class P>
[[gnu::noinline]] void multiply_packed(const P& p, const PackedShape<K>& s, const typename K::Unit* bp, int64_t m0,
                                       int64_t m1, int64_t s0, int64_t s1) {
  using Acc = typename K::Acc;
  using Unit = typename K::Unit;
  constexpr int NR = kTileCols<K>, L = kVecLanes<K>;
  if (m1 <= m0 || s1 <= s0) return;
  const auto& e = p.e;
  const bool plain = e.plain() && e.c_type == kAccType<K>;
  const int64_t block_rows = max64(1, kBlockBytes / int64_t(sizeof(Unit)) / s.block_units / kTileRows) * kTileRows;
  const int64_t row_blocks = ceil_div(m1 - m0, block_rows);
  const int64_t most_rows = ceil_div(m1 - m0, row_blocks);
  Unit* ap = static_cast<Unit*>(scratch(size_t(most_rows * s.block_units) * sizeof(Unit) + kPackSlack, kSlotA));
  Acc* sums =
      s.blocks > 1 ? static_cast<Acc*>(scratch(size_t(most_rows * (s1 - s0) * NR) * sizeof(Acc), kSlotSums)) : nullptr;
  alignas(64) Acc tile_sums[kTileRows * NR];
  for (int64_t rb = 0; rb < row_blocks; ++rb) {
    const int64_t i0 = m0 + (m1 - m0) * rb / row_blocks, rows = m0 + (m1 - m0) * (rb + 1) / row_blocks - i0;
    const int64_t panels = ceil_div(rows, kTileRows);
    for (int64_t kb = 0; kb < s.blocks; ++kb) {
      const int64_t depth = s.depth(kb), k0 = kb * s.block_units * K::kDepth,
                    values = min64(p.k - k0, depth * K::kDepth);
      const bool last = kb == s.blocks - 1;
      for (int64_t q = 0; q < panels; ++q) {
        const int64_t r0 = rows * q / panels, r1 = rows * (q + 1) / panels;
        p.pack_a(ap + r0 * depth, i0 + r0, int(r1 - r0), k0, values);
      }
      for (int64_t st = s0; st < s1; ++st) {
        const Unit* b = bp + s.offset(kb, st);
        const int64_t c0 = st * NR;
        const int cols = int(min64(p.n - c0, NR)), vecs = cols <= L ? 1 : kTileVecs;
        const bool straight = plain && cols == vecs * L;
        // The strip that follows this one in memory comes into L2 while this one is used, a part per panel.
        const int64_t ahead_bytes = ceil_div(depth * NR * int64_t(sizeof(Unit)), panels),
                      ahead_step = ceil_div(ahead_bytes, max64(1, depth));
        const char* ahead = reinterpret_cast<const char*>(b + depth * NR);
        for (int64_t q = 0; q < panels; ++q) {
          const int64_t r0 = rows * q / panels;
          const int mr = int(rows * (q + 1) / panels - r0);
          const auto run = tile_for<K, true>(mr, vecs);
          const Unit* a = ap + r0 * depth;
          Acc* rest = sums ? sums + ((st - s0) * rows + r0) * NR : nullptr;
          if (!last) {
            run(depth, a, 0, 0, b, 0, rest, NR, kb ? rest : nullptr, NR, ahead + q * ahead_bytes, ahead_step);
          } else if (straight) {
            run(depth, a, 0, 0, b, 0, static_cast<Acc*>(e.c) + (i0 + r0) * e.c_row + c0, e.c_row, rest, NR,
                ahead + q * ahead_bytes, ahead_step);
          } else {
            for (int i = 0; i < mr; ++i) __builtin_prefetch(advance(e.c, e.c_type, (i0 + r0 + i) * e.c_row + c0), 1);
            run(depth, a, 0, 0, b, 0, tile_sums, NR, rest, NR, ahead + q * ahead_bytes, ahead_step);
            finish_tile(e, i0 + r0, mr, c0, cols, tile_sums, NR);
          }
        }
      }
    }
  }
}

// How rows and strips are dealt to threads: the grid whose busiest thread has least,
// counting the packing of its rows of a.
struct Grid {
  int64_t rows, strips;
};
template <class K> SF_INLINE Grid choose_grid(int64_t m, int64_t strips, int64_t threads) {
  Grid best{1, 1};
  int64_t least = INT64_MAX;
  for (int64_t tm = 1; tm <= threads; ++tm) {
    const int64_t tn = threads / tm, tall = ceil_div(ceil_div(m, tm), kTileRows) * kTileRows;
    const int64_t cost = tall * (ceil_div(strips, tn) * kTileCols<K> + 16);
    if (cost < least) least = cost, best = {tm, tn};
  }
  return best;
}

// multiply-adds below which starting threads costs more than it saves
inline constexpr int64_t kParallelWork = 1 << 18;

// b packed already: the second half of multiply().
template <class K, class P> void multiply_prepacked(const P& p, const PackedShape<K>& s, const typename K::Unit* bp) {
  const int64_t work = p.m * p.n * p.k;
  const int64_t threads = work < 2 * kParallelWork ? 1 : min64(num_threads(), work / kParallelWork);
  if (threads == 1) return multiply_packed<K>(p, s, bp, 0, p.m, 0, s.strips);
  const Grid g = choose_grid<K>(p.m, s.strips, threads);
  parallel_for(g.rows * g.strips, 1, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t i = t / g.strips, j = t % g.strips;
      multiply_packed<K>(p, s, bp, p.m * i / g.rows, p.m * (i + 1) / g.rows, s.strips * j / g.strips,
                         s.strips * (j + 1) / g.strips);
    }
  });
}

template <class K, class P> void pack_whole_b(const P& p, const PackedShape<K>& s, typename K::Unit* dst) {
  const int64_t parts = s.blocks * s.strips, each = max64(1, s.block_units) * kTileCols<K>;
  parallel_for(parts, max64(1, (1 << 16) / each), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) pack_b<K>(p, s, dst, t / s.strips, t % s.strips);
  });
}

}  // namespace SF_ISA
}  // namespace sf
