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
#include "scaffolding/core/parallel_guided.h"
#include "scaffolding/core/scratch.h"
#include "scaffolding/ops/matmul/epilogue.h"
#include "scaffolding/ops/matmul/pack.h"

namespace sf {
namespace SF_ISA {

// Slots of sf::scratch taken by matrix products; convolutions nest products and take the next ones.
enum ScratchSlot { kSlotA, kSlotB, kSlotSums, kSlotConvInput, kSlotConvOutput, kSlotConvWeight, kSlotColumns };

inline constexpr int64_t kRowBlock = 8 * kTileRows;
inline constexpr int64_t kPackedBytes = int64_t(64) << 20;  // wider b are packed and multiplied in parts

// Arithmetic that cannot represent every operand says so after packing (split_product.h): *rest becomes true.
template <class K> SF_INLINE void watch_packing(bool* rest) {
  if constexpr (requires { K::take_rest(); })
    if (K::take_rest()) __atomic_store_n(rest, true, __ATOMIC_RELAXED);
}

// What multiply_packed() multiplies: sizes, an epilogue, and how to pack a part of either operand. This one reads two
// plain matrices; convolutions bring their own (conv_product.h).
template <class K, class S, class E = Epilogue> struct Product {
  using Src = S;
  int64_t m, n, k;
  const Src* a;
  int64_t a_m, a_k;  // strides, in elements
  const Src* b;
  int64_t b_k, b_n;
  E e;
  bool* rest = nullptr;  // watch_packing()

  // Rows row.. of a, values k0.. of k, as a strip of that many rows.
  SF_INLINE void pack_a(typename K::Unit* dst, int64_t row, int rows, int64_t k0, int64_t values) const {
    pack<typename K::Left>(dst, rows, a + row * a_m + k0 * a_k, a_m, a_k, rows, values);
    watch_packing<K>(rest);
  }
  // Columns col.. of b as a strip of kTileCols columns.
  SF_INLINE void pack_b(typename K::Unit* dst, int64_t col, int cols, int64_t k0, int64_t values) const {
    pack<K>(dst, kTileCols<K>, b + k0 * b_k + col * b_n, b_n, b_k, cols, values);
    watch_packing<K>(rest);
  }
};

SF_INLINE int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
SF_INLINE int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }
SF_INLINE int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }

// Row i of `parts` equal parts of m rows, of whole steps.
template <class K> SF_INLINE int64_t part_of(int64_t m, int64_t i, int64_t parts) {
  return min64(m, ceil_div(m * i / parts, K::kRowStep) * K::kRowStep);
}

template <class K> struct PackedShape {
  int64_t k, units, blocks, block_units, strips;
  SF_INLINE PackedShape(int64_t k_, int64_t n) : k(k_), units(ceil_div(k_, K::kDepth)) {
    blocks = units <= K::kDepthBlock ? 1 : ceil_div(units, K::kDepthPart);
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
template <class K>
requires std::is_same_v<typename K::Acc, int32_t>
inline constexpr DType kAccType<K> = kInt32;

// Rows of a that stay in L2 for all of k, with the sums of few strips beside them: b then comes by once, and nothing
// else does. 0: too few for that to pay (K::kStayRows).
inline constexpr int64_t kStayingSumBytes = 128 << 10;
template <class K> SF_INLINE int64_t rows_that_stay(int64_t units) {
  if constexpr (requires { K::kStayBytes; }) {
    const int64_t panels = K::kStayBytes / int64_t(sizeof(typename K::Unit)) / max64(1, units) / K::kPanelRows;
    return panels * K::kPanelRows >= K::kStayRows ? panels * K::kPanelRows : 0;
  }
  return 0;
}

// Rows of a whose part of k stays in L2 while the strips pass.
template <class K> SF_INLINE int64_t rows_of_block(const PackedShape<K>& s) {
  return max64(1, K::kBlockBytes / int64_t(sizeof(typename K::Unit)) / s.block_units / K::kPanelRows) * K::kPanelRows;
}

// Whether rows of a can be read from a copy that is shared by all of k (conv/staged_rows.h): p.staged says how it is
// made, K::staged_panel multiplies it.
template <class K, class P>
concept CanStage = requires(const P& p) {
  p.staged.steps;
  K::kStages;
};
template <class K, class P> SF_INLINE bool is_staged(const P& p) {
  if constexpr (CanStage<K, P>) return p.staged.data != nullptr;
  else return false;
}

// Units of k first .. end, outside of which a is zero for rows row .. row + count.
struct Units {
  int64_t first, end;
};
template <class K, class P>
SF_INLINE Units units_seen(const P& p, const PackedShape<K>& s, int64_t row, int64_t count) {
  if constexpr (CanStage<K, P>)
    if (is_staged<K>(p)) {
      const auto taps = p.staged.time_taps(row, count);
      const int64_t each = s.units / p.staged.g->kernel[0];
      return {taps.first * each, taps.second * each};
    }
  return {0, s.units};
}

// f(row of c, row of a, count) for rows first .. first + count of a: all of them, but where rows are staged with what
// lies between results.
template <class K, class P, class F> SF_INLINE void each_result(const P& p, int64_t first, int count, const F& f) {
  if constexpr (CanStage<K, P>)
    if (is_staged<K>(p)) return p.staged.each_result(first, count, f);
  f(first, 0, count);
}

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
  constexpr int64_t kPanel = K::kPanelRows;
  const bool staged = is_staged<K>(p);
  const int64_t stay_rows = rows_that_stay<K>(s.units);  // for all of k
  const bool stays = !staged && s.blocks > 1 && stay_rows > 0;
  int64_t block_rows = rows_of_block<K>(s);
  if (stays) block_rows = min64(block_rows, stay_rows);
  if constexpr (CanStage<K, P>)
    if (staged) block_rows = p.staged.block - 2 * K::kRowStep;
  const int64_t row_blocks = ceil_div(m1 - m0, block_rows);
  auto first_row = [&](int64_t rb) { return m0 + part_of<K>(m1 - m0, rb, row_blocks); };
  const int64_t most_rows = ceil_div(m1 - m0, row_blocks) + 2 * K::kRowStep;
  // Strips whose sums stay near while all of k goes by. Where these are not all, a block of rows is packed whole.
  const int64_t sum_bytes = stays ? kStayingSumBytes : K::kSumBytes;
  const int64_t together =
      s.blocks == 1 ? s1 - s0 : min64(s1 - s0, max64(1, sum_bytes / int64_t(sizeof(Acc)) / (most_rows * NR)));
  const bool whole = !staged && together < s1 - s0;
  size_t a_bytes = size_t(most_rows * (whole ? s.units : s.block_units)) * sizeof(Unit) + kPackSlack;
  if constexpr (CanStage<K, P>)
    if (staged) a_bytes = size_t(p.staged.most_bytes(p.staged.block));
  Unit* ap = static_cast<Unit*>(scratch(a_bytes, kSlotA));
  Acc* sums =
      s.blocks > 1 ? static_cast<Acc*>(scratch(size_t(most_rows * together * NR) * sizeof(Acc), kSlotSums)) : nullptr;
  alignas(64) Acc tile_sums[kPanel * NR];
  [[maybe_unused]] typename K::Scope scope;
  for (int64_t rb = 0; rb < row_blocks; ++rb) {
    const int64_t i0 = first_row(rb), rows = first_row(rb + 1) - i0, panels = ceil_div(rows, kPanel);
    auto panel = [&](int64_t q) { return K::panel(rows, q, panels); };
    if constexpr (CanStage<K, P>)
      if (staged) p.staged.stage(reinterpret_cast<typename P::Src*>(ap), i0, rows);
    const Units seen = units_seen<K>(p, s, i0, rows);
    const int64_t first_block = seen.first / s.block_units,
                  last_block = max64(first_block, (seen.end - 1) / s.block_units);
    for (int64_t g0 = s0; g0 < s1; g0 += together)
      for (int64_t kb = first_block; kb <= last_block; ++kb) {
        const int64_t u0 = kb * s.block_units, skipped = max64(0, seen.first - u0),
                      depth = min64(s.depth(kb), seen.end - u0) - skipped, k0 = u0 * K::kDepth,
                      values = min64(p.k - k0, depth * K::kDepth);
        const bool last = kb == last_block;
        Unit* const block = ap + (whole ? kb * s.block_units * rows : 0);
        if (!staged && (!whole || g0 == s0))
          for (int64_t q = 0; q < panels; ++q)
            p.pack_a(block + panel(q) * depth, i0 + panel(q), int(panel(q + 1) - panel(q)), k0, values);
        for (int64_t st = g0; st < min64(s1, g0 + together); ++st) {
          const Unit* b = bp + s.offset(kb, st) + skipped * NR;
          const int64_t c0 = st * NR;
          const int cols = int(min64(p.n - c0, NR)), vecs = cols <= L ? 1 : kTileVecs;
          const bool straight = plain && !staged && cols == vecs * L;
          // The strip that follows this one in memory comes into L2 while this one is used, a part per panel.
          const int64_t ahead_bytes = ceil_div(depth * NR * int64_t(sizeof(Unit)), panels),
                        ahead_step = ceil_div(ahead_bytes, max64(1, depth));
          const char* ahead = reinterpret_cast<const char*>(b + s.depth(kb) * NR);
          for (int64_t q = 0; q < panels; ++q) {
            const int64_t r0 = panel(q);
            const int mr = int(panel(q + 1) - r0);
            const auto tile = tile_for<K, true>(mr, vecs);
            const Unit* a = block + r0 * depth;
            const char* fetch = ahead + q * ahead_bytes;
            auto run = [&](Acc * c, int64_t c_row, const Acc* before) __attribute__((always_inline)) {
              if constexpr (CanStage<K, P>)
                if (staged) {
                  const auto* lines = reinterpret_cast<const typename P::Src*>(ap);
                  return K::staged_panel(depth, p.staged.at(lines, i0, i0 + r0),
                                         mr > 16 ? p.staged.at(lines, i0, i0 + r0 + 16) : nullptr, p.staged.padded,
                                         p.staged.again(), p.staged.steps + u0 + skipped, mr, vecs, b, c, c_row, before,
                                         NR, fetch, ahead_step);
                }
              tile(depth, a, mr, 0, b, 0, c, c_row, before, NR, fetch, ahead_step);
            };
            Acc* rest = sums ? sums + ((st - g0) * rows + r0) * NR : nullptr;
            const Acc* before = kb > first_block ? rest : nullptr;
            if (!last) {
              run(rest, NR, before);
            } else if (straight) {
              run(static_cast<Acc*>(e.c) + (i0 + r0) * e.c_row + c0, e.c_row, before);
            } else {
              each_result<K>(p, i0 + r0, mr, [&](int64_t row, int, int count) {
                for (int i = 0; i < count; ++i) __builtin_prefetch(advance(e.c, e.c_type, (row + i) * e.c_row + c0), 1);
              });
              run(tile_sums, NR, before);
              each_result<K>(p, i0 + r0, mr, [&](int64_t row, int at, int count) {
                finish_tile(e, row, count, c0, cols, tile_sums + at * NR, NR);
              });
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
    const int64_t tn = threads / tm, tall = ceil_div(ceil_div(m, tm), K::kPanelRows) * K::kPanelRows;
    const int64_t cost = tall * (ceil_div(strips, tn) * kTileCols<K> + 16);
    if (cost < least) least = cost, best = {tm, tn};
  }
  return best;
}

// multiply-adds below which starting threads costs more than it saves
inline constexpr int64_t kParallelWork = 1 << 18;

// A thread's share is dealt in pieces of so many multiply-adds or more: of whole blocks of rows where there are
// several, so that each still sees all strips once.
inline constexpr int64_t kDealtWork = 1 << 24, kMostDealt = 8, kLeastDealtStrips = 8;
SF_INLINE Grid dealt(Grid g, int64_t work, int64_t row_blocks, int64_t strips) {
  const int64_t pieces = max64(1, min64(kMostDealt, work / (g.rows * g.strips * kDealtWork)));
  const int64_t tall = max64(1, min64(pieces, row_blocks / g.rows));
  return {g.rows * tall, g.strips * max64(1, min64(pieces / tall, strips / (g.strips * kLeastDealtStrips)))};
}

// b packed already: the second half of multiply().
template <class K, class P> void multiply_prepacked(const P& p, const PackedShape<K>& s, const typename K::Unit* bp) {
  const int64_t work = p.m * p.n * p.k;
  const int64_t threads = work < 2 * kParallelWork ? 1 : min64(num_threads(), work / kParallelWork);
  if (threads == 1) return multiply_packed<K>(p, s, bp, 0, p.m, 0, s.strips);
  const int64_t block_rows = max64(rows_of_block<K>(s), s.blocks > 1 ? rows_that_stay<K>(s.units) : 0);
  const Grid g = dealt(choose_grid<K>(p.m, s.strips, threads), work, p.m / block_rows, s.strips);
  parallel_for_guided(g.rows * g.strips, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t i = t / g.strips, j = t % g.strips;
      multiply_packed<K>(p, s, bp, part_of<K>(p.m, i, g.rows), part_of<K>(p.m, i + 1, g.rows), s.strips * j / g.strips,
                         s.strips * (j + 1) / g.strips);
    }
  });
}

// The same for b whose packed copy is kept: the last byte tells whoever finds it.
template <class K, class P> SF_INLINE void remember_rest(const P& p, const PackedShape<K>& s, void* packed) {
  if constexpr (requires { K::take_rest(); }) static_cast<char*>(packed)[s.bytes() - 1] = *p.rest;
}
template <class K, class P> SF_INLINE void recall_rest(const P& p, const PackedShape<K>& s, const void* packed) {
  if constexpr (requires { K::take_rest(); })
    if (static_cast<const char*>(packed)[s.bytes() - 1]) *p.rest = true;
}

template <class K, class P> void pack_whole_b(const P& p, const PackedShape<K>& s, typename K::Unit* dst) {
  const int64_t parts = s.blocks * s.strips, each = max64(1, s.block_units) * kTileCols<K>;
  parallel_for(parts, max64(1, (1 << 16) / each), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) pack_b<K>(p, s, dst, t / s.strips, t % s.strips);
  });
}

}  // namespace SF_ISA
}  // namespace sf
