// float32 products that read one operand where it lies: its rows run along k in memory, as those of activations and of
// a Linear layer's weight do. Included only by *.cpu.cpp files; everything lives in namespace sf::SF_ISA.
//
// The rows' numbers enter as broadcasts, so they need no packing, only to be near: while a block of rows is multiplied,
// the next one comes into L2, a line now and then. The other operand is packed into strips (packed_gemm.h): the one
// with fewer rows, since packing is what is left besides multiplying. Where that is the activations (256 tokens against
// 1280 rows of weights), tiles are of the transposed product and turn when they are stored.
// 1280 rows of weights that no cache holds, two threads, share of a large product's rate: 256 tokens 82 -> 95 %,
// 64 tokens 50 -> 85 %.
#pragma once
#include "scaffolding/core/parallel_guided.h"
#include "scaffolding/ops/matmul/packed_gemm.h"

namespace sf {
namespace SF_ISA {

// What comes into L2 while a tile is computed: `parts` pieces of memory, `row` bytes apart, and one more that is
// contiguous. Steps are bytes for each kAheadSteps steps of k.
struct Ahead {
  const char* piece;
  int64_t row, step;
  int parts;
  const char* line;
  int64_t line_step;
};
inline constexpr int kAheadSteps = 4;

// c += a * b where c lies. With 16 registers the compiler otherwise reads b from memory twice, and turns products so
// that sums change places: tiles of 6, 5 and 4 rows then run at 92, 77 and 93 % of what this does (Zen 3).
SF_INLINE void accumulate(MulF32::Vec a, MulF32::Vec b, MulF32::Vec& c) {
#if defined(__FMA__) && !defined(__AVX512F__)
  asm("vfmadd231ps %2, %1, %0" : "+x"(c) : "x"(a), "x"(b));
#else
  c = MulF32::mul_add(a, b, c);
#endif
}

// c[i][0 .. NV vectors) = sum over k of row(i)[k] * b[k], plus rest[i] if rest is given. Rows are kGroups runs of MR /
// kGroups rows, each `stride` floats apart from its start in a[]. b is [depth][kTileCols].
template <int MR, int NV, int kGroups>
[[gnu::noinline]] void tile_rows(int64_t depth, const float* const* a, int64_t stride, const float* b, float* c,
                                 int64_t c_row, const float* rest, int64_t rest_row, const Ahead& next) {
  using K = MulF32;
  using Vec = K::Vec;
  // an address reaches rows 0, 1 and 2 from a pointer
  constexpr int L = kLanes, kRun = MR / kGroups, kPointers = (kRun + 2) / 3;
  const float* p[kGroups][kPointers];
#pragma GCC unroll 2
  for (int g = 0; g < kGroups; ++g)
#pragma GCC unroll 8
    for (int x = 0; x < kPointers; ++x) p[g][x] = a[g] + x * 3 * stride;
  Vec acc[MR][NV];
#pragma GCC unroll 16
  for (int i = 0; i < MR; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < NV; ++j) acc[i][j] = Vec{};
#pragma GCC unroll 16
  for (int i = 0; i < MR; ++i)
    for (int j = 0; j < NV * L; j += 16) __builtin_prefetch(c + i * c_row + j, 1);
  auto step = [&](int k) __attribute__((always_inline)) {
    Vec bv[NV];
#pragma GCC unroll 4
    for (int j = 0; j < NV; ++j) bv[j] = load_vec<K>(b + k * kTileCols<K> + j * L);
#pragma GCC unroll 16
    for (int i = 0; i < MR; ++i) {
      const Vec av = K::splat(p[i / kRun][i % kRun / 3][i % kRun % 3 * stride + k]);
#pragma GCC unroll 4
      for (int j = 0; j < NV; ++j) accumulate(av, bv[j], acc[i][j]);
    }
  };
  auto advance_by = [&](int k) __attribute__((always_inline)) {
    b += k * kTileCols<K>;
#pragma GCC unroll 2
    for (int g = 0; g < kGroups; ++g)
#pragma GCC unroll 8
      for (int x = 0; x < kPointers; ++x) {
        p[g][x] += k;
        asm volatile("" : "+r"(p[g][x]));  // or the compiler keeps one counter and five sums of addresses for each row
      }
  };
  const char* line = next.line;
  const int64_t groups = depth / kAheadSteps;
  int64_t q = 0;
  for (int part = 0; part < next.parts; ++part) {
    const char* piece = next.piece + part * next.row;
    for (const int64_t end = groups * (part + 1) / next.parts; q < end; ++q) {
      __builtin_prefetch(piece, 0, 2);
      __builtin_prefetch(line, 0, 2);
      step(0);
      step(1);
      __builtin_prefetch(piece + next.step / 2, 0, 2);
      __builtin_prefetch(line + next.line_step / 2, 0, 2);
      step(2);
      step(3);
      piece += next.step;
      line += next.line_step;
      advance_by(kAheadSteps);
    }
  }
  for (int64_t k = groups * kAheadSteps; k < depth; ++k) {
    step(0);
    advance_by(1);
  }
#pragma GCC unroll 16
  for (int i = 0; i < MR; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < NV; ++j) {
      if (rest) acc[i][j] += load_vec<K>(rest + i * rest_row + j * L);
      store_vec<K>(c + i * c_row + j * L, acc[i][j]);
    }
}

using RowTileFn = void (*)(int64_t depth, const float* const* a, int64_t stride, const float* b, float* c,
                           int64_t c_row, const float* rest, int64_t rest_row, const Ahead& next);
template <int kGroups, int MR = kTileRows / kGroups* kGroups> SF_INLINE RowTileFn find_row_tile(int rows, int vecs) {
  if constexpr (MR > kGroups)
    if (rows < MR) return find_row_tile<kGroups, MR - kGroups>(rows, vecs);
  return vecs == 1 ? &tile_rows<MR, 1, kGroups> : &tile_rows<MR, kTileVecs, kGroups>;
}
template <int kGroups> [[gnu::noinline]] RowTileFn row_tile_for(int rows, int vecs) {
  return find_row_tile<kGroups>(rows, vecs);
}
#if !defined(SF_AMX_ALONE)
extern template RowTileFn row_tile_for<1>(int, int);
extern template RowTileFn row_tile_for<2>(int, int);
#endif

// The operand that is read where it lies: kGroups matrices [rows, k] with one stride,
// whose row r is multiplied together.
template <int kGroups> struct LyingRows {
  const float* data[kGroups];
  int64_t stride;
};

// What comes into L2 while tiles go by: the next block of rows, dealt to the tiles of this one, and the next strip,
// dealt to the tiles of this strip. What a tile divides is divided once for all.
class Fetching {
 public:
  // The next block: matrices at `data`, `stride` floats from row to row, `rows` rows of `bytes` bytes in each. A tile
  // has `groups` groups of kAheadSteps steps, and there are `tiles`.
  Fetching(const float* const* data, int groups_of_rows, int64_t stride, int64_t rows, int64_t bytes, int64_t tiles,
           int64_t panels, int64_t strip_bytes, int64_t groups)
      : data_(data),
        stride_(stride * int64_t(sizeof(float))),
        rows_(rows),
        left_(rows * groups_of_rows),
        groups_(groups),
        tiles_per_row_(max64(1, tiles / max64(1, left_))),
        rows_per_tile_(ceil_div(max64(1, left_), tiles)),
        piece_(bytes / tiles_per_row_),
        step_(ceil_div(piece_ * rows_per_tile_, groups)),
        part_(ceil_div(strip_bytes, panels)),
        line_step_(ceil_div(part_, groups)) {}
  // For the next tile, which reads rows at `from` and is the q-th of a strip that ends at `strip_end`.
  SF_INLINE Ahead next(const float* from, const char* strip_end, int64_t q) {
    Ahead a{reinterpret_cast<const char*>(from), 0, 0, 1, strip_end + q * part_, line_step_};
    if (left_ <= 0) return a;
    if (row_ >= rows_) row_ -= rows_, ++matrix_;
    a.piece = reinterpret_cast<const char*>(data_[matrix_]) + row_ * stride_ + tile_of_row_ * piece_;
    a.step = step_;
    if (tiles_per_row_ > 1) {
      if (++tile_of_row_ == tiles_per_row_) tile_of_row_ = 0, ++row_, --left_;
      return a;
    }
    a.parts = int(min64(rows_per_tile_, rows_ - row_));
    a.row = stride_;
    if (a.parts < rows_per_tile_) a.step = ceil_div(piece_ * a.parts, groups_);
    row_ += rows_per_tile_;
    left_ -= rows_per_tile_;
    return a;
  }

 private:
  const float* const* data_;
  int64_t stride_, rows_, left_, groups_, tiles_per_row_, rows_per_tile_, piece_, step_, part_, line_step_;
  int64_t row_ = 0, tile_of_row_ = 0;
  int matrix_ = 0;
};

// A block of rows takes kRowBlock * MulF32::kDepthBlock numbers at most, and stays in L2 while the strips pass.
SF_INLINE int64_t rows_of_row_block(const PackedShape<MulF32>& s) {
  return max64(kRowBlock, kRowBlock * MulF32::kDepthBlock / max64(1, s.block_units) / kTileRows * kTileRows);
}

// Rows r0..r1 of the operand that lies and strips s0..s1 of the packed one, on the calling thread. `done` says where a
// whole tile may be stored directly (place, or null) and what is added to each of its rows (bias, or null), and takes
// all others: sums[rows * kGroups][kTileCols] of rows r.. and columns c.. of the packed operand. will_write: what these
// touch should be on its way while the tile is computed.
template <int kGroups, class Done>
[[gnu::noinline]] void multiply_row_blocks(const LyingRows<kGroups>& a, const PackedShape<MulF32>& s, const float* bp,
                                           int64_t columns, int64_t r0, int64_t r1, int64_t s0, int64_t s1,
                                           const Done& done) {
  constexpr int NR = kTileCols<MulF32>, kPanel = kTileRows / kGroups;
  if (r1 <= r0 || s1 <= s0) return;
  const int64_t most = rows_of_row_block(s) / kGroups;
  const int64_t row_blocks = ceil_div(r1 - r0, most), strips = s1 - s0;
  const int64_t tallest = ceil_div(r1 - r0, row_blocks);
  float* sums = s.blocks > 1
                    ? static_cast<float*>(scratch(size_t(tallest * kGroups * strips * NR) * sizeof(float), kSlotSums))
                    : nullptr;
  alignas(64) float tile_sums[kTileRows * NR];
  for (int64_t rb = 0; rb < row_blocks; ++rb) {
    const int64_t i0 = r0 + (r1 - r0) * rb / row_blocks, i1 = r0 + (r1 - r0) * (rb + 1) / row_blocks, rows = i1 - i0;
    // Equal heights: `taller` panels of height + 1 rows, then those of height.
    const int64_t panels = ceil_div(rows, kPanel), height = rows / panels, taller = rows % panels;
    for (int64_t kb = 0; kb < s.blocks; ++kb) {
      const int64_t depth = s.depth(kb), k0 = kb * s.block_units;
      const bool last = kb == s.blocks - 1;
      // The block after this one: the same rows' next k, or the next rows.
      const int64_t next_row = last ? i1 : i0, next_k = last ? 0 : k0 + depth;
      const int64_t next_rows = last ? (rb + 1 < row_blocks ? r0 + (r1 - r0) * (rb + 2) / row_blocks - i1 : 0) : rows;
      const float* next_data[kGroups];
      for (int g = 0; g < kGroups; ++g) next_data[g] = a.data[g] + next_row * a.stride + next_k;
      Fetching fetching(next_data, kGroups, a.stride, next_rows, s.depth(last ? 0 : kb + 1) * int64_t(sizeof(float)),
                        panels * strips, panels, depth * NR * int64_t(sizeof(float)), max64(1, depth / kAheadSteps));
      for (int64_t st = s0; st < s1; ++st) {
        const float* b = bp + s.offset(kb, st);
        const char* strip_end = reinterpret_cast<const char*>(b + depth * NR);
        const int64_t c0 = st * NR;
        const int cols = int(min64(columns - c0, NR)), vecs = cols <= kLanes ? 1 : kTileVecs;
        const bool whole = cols == vecs * kLanes;
        float* rest = sums ? sums + (st - s0) * rows * kGroups * NR : nullptr;
        for (int64_t q = 0, p0 = 0; q < panels; ++q) {
          const int mr = int(height + (q < taller));
          const float* from[kGroups];
          for (int g = 0; g < kGroups; ++g) from[g] = a.data[g] + (i0 + p0) * a.stride + k0;
          const Ahead next = fetching.next(from[0], strip_end, q);
          int64_t c_row = NR;
          float* c = whole ? done.place(i0 + p0, c0, c_row) : nullptr;
          const float* before = kb ? rest : c ? done.bias(c0) : nullptr;
          const int64_t before_row = kb ? NR : 0;
          const auto run = row_tile_for<kGroups>(mr * kGroups, vecs);
          if (!last) {
            run(depth, from, a.stride, b, rest, NR, before, before_row, next);
          } else if (c) {
            run(depth, from, a.stride, b, c, c_row, before, before_row, next);
          } else {
            done.will_write(i0 + p0, mr, c0, cols);
            run(depth, from, a.stride, b, tile_sums, NR, before, before_row, next);
            done(i0 + p0, mr, c0, cols, tile_sums);
          }
          p0 += mr;
          if (rest) rest += mr * kGroups * NR;
        }
      }
    }
  }
}

// All rows and strips, on the threads that the work is worth.
template <int kGroups, class Done>
void multiply_rows(const LyingRows<kGroups>& a, int64_t rows, const PackedShape<MulF32>& s, const float* bp,
                   int64_t columns, const Done& done) {
  const int64_t work = rows * kGroups * columns * s.k;
  const int64_t threads = work < 2 * kParallelWork ? 1 : min64(num_threads(), work / kParallelWork);
  if (threads == 1) return multiply_row_blocks(a, s, bp, columns, 0, rows, 0, s.strips, done);
  // Rows rather than strips where it is the same work: each thread then reads rows that no other reads.
  Grid best{1, 1};
  int64_t least = INT64_MAX;
  for (int64_t tr = threads; tr > 0; --tr) {
    const int64_t ts = threads / tr, tall = ceil_div(rows * kGroups, tr);
    const int64_t cost = ceil_div(tall, 2) * 2 * ceil_div(s.strips, ts);
    if (cost < least) least = cost, best = {tr, ts};
  }
  const Grid g = dealt(best, work, rows * kGroups / rows_of_row_block(s), s.strips);
  parallel_for_guided(g.rows * g.strips, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t i = t / g.strips, j = t % g.strips;
      multiply_row_blocks(a, s, bp, columns, rows * i / g.rows, rows * (i + 1) / g.rows, s.strips * j / g.strips,
                          s.strips * (j + 1) / g.strips, done);
    }
  });
}

// The lines of `rows` rows and `columns` columns of c.
SF_INLINE void will_write(void* c, int64_t c_row, DType type, int64_t row, int64_t rows, int64_t column, int columns) {
  for (int64_t i = row; i < row + rows; ++i) {
    __builtin_prefetch(advance(c, type, i * c_row + column), 1);
    __builtin_prefetch(advance(c, type, i * c_row + column + columns - 1), 1);
  }
}

// Tiles as rows and columns of c.
struct StoreTile {
  Epilogue e;
  bool straight;  // sums are stored as they are, or with a bias
  explicit StoreTile(const Epilogue& epilogue) : e(epilogue) {
    Epilogue rest = e;
    if (e.bias_type == kFloat32) rest.bias = nullptr;
    straight = rest.plain() && e.c_type == kFloat32;
  }
  SF_INLINE float* place(int64_t row, int64_t column, int64_t& c_row) const {
    c_row = e.c_row;
    return straight ? static_cast<float*>(e.c) + row * e.c_row + column : nullptr;
  }
  SF_INLINE const float* bias(int64_t column) const {
    return e.bias ? static_cast<const float*>(e.bias) + column : nullptr;
  }
  SF_INLINE void will_write(int64_t row, int rows, int64_t column, int columns) const {
    SF_ISA::will_write(e.c, e.c_row, e.c_type, row, rows, column, columns);
  }
  SF_INLINE void operator()(int64_t row, int rows, int64_t column, int columns, const float* sums) const {
    finish_tile(e, row, rows, column, columns, sums, kTileCols<MulF32>);
  }
};

// turned[kTileCols][kLanes] = sums[rows][kTileCols], rows <= kMost.
template <int kMost> SF_INLINE void turn_tile(float* turned, const float* sums, int rows) {
  for (int j = 0; j < kTileCols<MulF32>; j += kLanes) {
    MulF32::Vec r[kLanes];
    for (int i = 0; i < kLanes; ++i)
      r[i] = i < kMost && i < rows ? load_vec<MulF32>(sums + i * kTileCols<MulF32> + j) : MulF32::Vec{};
    transpose<MulF32::Vec, kLanes>(r);
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) store_vec<MulF32>(turned + (j + i) * kLanes, r[i]);
  }
}

// Tiles whose rows are columns of c.
struct StoreTurned {
  static_assert(kTileRows <= kLanes);
  Epilogue e;
  SF_INLINE float* place(int64_t, int64_t, int64_t&) const { return nullptr; }
  SF_INLINE const float* bias(int64_t) const { return nullptr; }
  SF_INLINE void will_write(int64_t row, int rows, int64_t column, int columns) const {
    SF_ISA::will_write(e.c, e.c_row, e.c_type, column, columns, row, rows);
  }
  SF_INLINE void operator()(int64_t row, int rows, int64_t column, int columns, const float* sums) const {
    alignas(64) float turned[kTileCols<MulF32> * kLanes];
    turn_tile<kTileRows>(turned, sums, rows);
    finish_tile(e, column, columns, row, rows, turned, kLanes);
  }
};

}  // namespace SF_ISA
}  // namespace sf
