// Products with few rows, where packing b would cost more than the product, and the choice between them and the rest.
// Included only by *.cpu.cpp files; everything lives in namespace sf::SF_ISA.
#pragma once
#include "scaffolding/backend/cpu/lean_memory.h"
#include "scaffolding/ops/matmul/row_gemm.h"

namespace sf {
namespace SF_ISA {

// a and b are read where they are. b has stride 1 along n; its ragged last columns go through a padded copy.
template <class K, class P> [[gnu::noinline]] void multiply_strided(const P& p, int64_t s0, int64_t s1) {
  using Acc = typename K::Acc;
  constexpr int NR = kTileCols<K>, L = kVecLanes<K>;
  const bool plain = p.e.plain() && p.e.c_type == kAccType<K>;
  const int64_t panels = ceil_div(p.m, kStridedRows);
  alignas(64) Acc tile_sums[kStridedRows * NR];
  for (int64_t st = s0; st < s1; ++st) {
    const int64_t c0 = st * NR;
    const int cols = int(min64(p.n - c0, NR)), vecs = cols <= L ? 1 : kTileVecs;
    const bool whole = cols == vecs * L;
    const typename K::Unit* b = p.b + c0;
    int64_t b_step = p.b_k;
    if (!whole) {
      auto* copy = static_cast<typename K::Unit*>(scratch(size_t(p.k) * NR * sizeof(Acc) + kPackSlack, kSlotB));
      pack<K>(copy, NR, b, 1, p.b_k, cols, p.k);
      b = copy;
      b_step = NR;
    }
    for (int64_t q = 0; q < panels; ++q) {
      const int64_t r0 = p.m * q / panels;
      const int mr = int(p.m * (q + 1) / panels - r0);
      const bool straight = plain && whole;
      tile_for<K, false>(mr, vecs)(p.k, p.a + r0 * p.a_m, p.a_m, p.a_k, b, b_step,
                                   straight ? static_cast<Acc*>(p.e.c) + r0 * p.e.c_row + c0 : tile_sums,
                                   straight ? p.e.c_row : NR, nullptr, 0, nullptr, 0);
      if (!straight) finish_tile(p.e, r0, mr, c0, cols, tile_sums, NR);
    }
  }
}

// Both operands run along k (a Linear layer's weight, a handful of rows): dot products of whole vectors,
// 4 columns at a time.
// Sums of 4 rows x 4 columns take 16 registers; half the rows where there are only 16 in all.
inline constexpr int kDotRows = kLanes == 16 ? 4 : 2, kDotCols = 4;
inline constexpr int64_t kDotWork = 1 << 17;  // multiply-adds worth a thread: memory, not arithmetic, is the limit here
// Rows up to which dot products beat packing b for one use (1280 x 1280: float32 116 against 163 us at 12 rows;
// bfloat16, which dot products must widen, 64 against 80 at 4 and 113 against 81 at 6).
template <class Src> inline constexpr int64_t kDotMost = sizeof(Src) == 4 ? 12 : 4;

template <class Src, int MR>
[[gnu::noinline]] void dots(int64_t k, const Src* a, int64_t a_m, const Src* const (&b)[kDotCols], float* sums,
                            int64_t sums_row) {
  vf acc[MR][kDotCols];
  for (int i = 0; i < MR; ++i)
    for (int j = 0; j < kDotCols; ++j) acc[i][j] = vf(0.f);
  int64_t x = 0;
  for (; x + kLanes <= k; x += kLanes) {
    vf bv[kDotCols];
#pragma GCC unroll 4
    for (int j = 0; j < kDotCols; ++j) bv[j] = load(b[j] + x);
#pragma GCC unroll 4
    for (int i = 0; i < MR; ++i) {
      const vf av = load(a + i * a_m + x);
#pragma GCC unroll 4
      for (int j = 0; j < kDotCols; ++j) acc[i][j] = fma(av, bv[j], acc[i][j]);
    }
  }
  if (x < k) {
    const int n = int(k - x);
    for (int i = 0; i < MR; ++i)
      for (int j = 0; j < kDotCols; ++j)
        acc[i][j] = fma(vf(load_part(a + i * a_m + x, n)), vf(load_part(b[j] + x, n)), acc[i][j]);
  }
  for (int i = 0; i < MR; ++i)
    for (int j = 0; j < kDotCols; ++j) sums[i * sums_row + j] = reduce_add(acc[i][j]);
}

// Strips s0 .. s1 - 1 of columns. turned: a and b stand for each other, so that c gets rows of sums as columns.
template <bool turned, class P> [[gnu::noinline]] void multiply_dots(const P& p, int64_t s0, int64_t s1) {
  using Src = typename P::Src;
  constexpr int NR = kTileCols<MulF32>;
  alignas(64) float sums[kDotRows * NR];
  for (int64_t st = s0; st < s1; ++st) {
    const int64_t c0 = st * NR;
    const int cols = int(min64(p.n - c0, NR));
    for (int64_t r0 = 0; r0 < p.m; r0 += kDotRows) {
      const int rows = int(min64(kDotRows, p.m - r0));
      for (int j = 0; j < cols; j += kDotCols) {
        const Src* b[kDotCols];  // past the last column the last one again: its sums are not used
        for (int i = 0; i < kDotCols; ++i) b[i] = p.b + (c0 + min64(j + i, cols - 1)) * p.b_n;
        const Src* a = p.a + r0 * p.a_m;
        switch (rows) {
          case 1: dots<Src, 1>(p.k, a, p.a_m, b, sums + j, NR); break;
          case 2: dots<Src, 2>(p.k, a, p.a_m, b, sums + j, NR); break;
          case 3: dots<Src, kDotRows == 4 ? 3 : 2>(p.k, a, p.a_m, b, sums + j, NR); break;
          default: dots<Src, kDotRows>(p.k, a, p.a_m, b, sums + j, NR);
        }
      }
      if constexpr (turned) {
        alignas(64) float columns[NR][kLanes];
        for (int j = 0; j < cols; ++j)
          for (int i = 0; i < rows; ++i) columns[j][i] = sums[i * NR + j];
        finish_tile(p.e, c0, cols, r0, rows, columns[0], kLanes);
      } else {
        finish_tile(p.e, r0, rows, c0, cols, sums, NR);
      }
    }
  }
}
// One dot product. Its sums do not depend on threads.
template <class P> [[gnu::noinline]] void multiply_dot(const P& p) {
  constexpr int kSums = 8;
  vf sums[kSums];
  for (vf& sum : sums) sum = vf(0.f);
  int64_t x = 0;
  for (; x + kSums * kLanes <= p.k; x += kSums * kLanes)
#pragma GCC unroll 8
    for (int i = 0; i < kSums; ++i) sums[i] = fma(load(p.a + x + i * kLanes), load(p.b + x + i * kLanes), sums[i]);
  for (; x < p.k; x += kLanes) {
    const int n = int(min64(kLanes, p.k - x));
    sums[0] = fma(vf(load_part(p.a + x, n)), vf(load_part(p.b + x, n)), sums[0]);
  }
  for (int i = 1; i < kSums; ++i) sums[0] += sums[i];
  alignas(64) float tile[kLanes] = {reduce_add(sums[0])};
  finish_tile(p.e, 0, 1, 0, 1, tile, kLanes);
}

// b in place pays while it is read few times, or while it sits in L1 anyway.
template <class K, class P> SF_INLINE bool prefers_strided(const P& p) {
  if (p.b_n != 1 && p.n > 1) return false;
  return p.m <= 5 * kStridedRows || p.k * p.n <= 4096;
}

// Which operand of a float32 product is read where it lies (row_gemm.h), by what packing the rest costs: in cycles of a
// 512-bit machine, an element that is transposed takes 0.4, one that is copied 0.15, one of c that is turned 0.3.
// float16 and bfloat16 are converted when they are packed, so both are. Rows a multiple of a page apart fall on few
// sets of L2: where many columns share the packing, they are packed (n = 2048: 48 against 76 ms).
enum class Lies { None, A, B };
template <class K, class P> SF_INLINE Lies which_lies(const P& p) {
  if constexpr (!std::is_same_v<K, MulF32> || sizeof(typename P::Src) != 4) return Lies::None;
  auto packing = [](int64_t count, int64_t k, int64_t k_stride) {
    return double(count) * double(k) * (k_stride == 1 ? 0.4 : 0.15);
  };
  const double a = packing(p.m, p.k, p.a_k), b = packing(p.n, p.k, p.b_k);
  double least = a + b;
  Lies best = Lies::None;
  const bool a_crowds = p.a_m % 1024 == 0 && p.n >= 1024, b_crowds = p.b_n % 1024 == 0 && p.m >= 1024;
  if (p.a_k == 1 && b < least && !a_crowds) least = b, best = Lies::A;
  if (p.b_k == 1 && !b_crowds && a + 0.3 * double(p.m) * double(p.n) < least) best = Lies::B;
  return best;
}

// a lies: b is packed.
template <class P> void multiply_rows_of_a(const P& p) {
  const PackedShape<MulF32> s(p.k, p.n);
  float* packed = static_cast<float*>(scratch(s.bytes(), kSlotB));
  pack_whole_b<MulF32>(p, s, packed);
  multiply_rows(LyingRows<1>{{p.a}, p.a_m}, p.m, s, packed, p.n, StoreTile(p.e));
}
// b lies: c is computed transposed, with a in strips.
template <class P> void multiply_rows_of_b(const P& p) {
  P turned = p;
  turned.b = p.a, turned.b_k = p.a_k, turned.b_n = p.a_m, turned.n = p.m;
  const PackedShape<MulF32> s(p.k, p.m);
  float* packed = static_cast<float*>(scratch(s.bytes(), kSlotB));
  pack_whole_b<MulF32>(turned, s, packed);
  multiply_rows(LyingRows<1>{{p.b}, p.b_n}, p.n, s, packed, p.m, StoreTurned{p.e});
}

template <class K, class P> void multiply(const P& p) {
  if (p.m == 0 || p.n == 0) return;
  if constexpr (std::is_same_v<typename K::Acc, float>) {
    const bool along_k = p.a_k == 1 && p.b_k == 1;
    if (along_k && p.m == 1 && p.n == 1) return multiply_dot(p);
    if (along_k && p.n <= kDotRows && p.m > kDotMost<typename P::Src>) {  // a matrix and a vector, or a few
      P turned = p;
      turned.m = p.n, turned.n = p.m;
      turned.a = p.b, turned.a_m = p.b_n, turned.b = p.a, turned.b_n = p.a_m;
      const int64_t strips = ceil_div(p.m, kTileCols<MulF32>), each = max64(1, p.n * p.k * kTileCols<MulF32>);
      return parallel_for(strips, ceil_div(kDotWork, each),
                          [&](int64_t begin, int64_t end) { multiply_dots<true>(turned, begin, end); });
    }
  }
  if constexpr (sizeof(typename P::Src) == sizeof(typename K::Unit) && K::kDepth == 1) {
    if (prefers_strided<K>(p)) {
      const int64_t strips = ceil_div(p.n, kTileCols<K>), each = max64(1, p.m * p.k * kTileCols<K>);
      return parallel_for(strips, ceil_div(kParallelWork, each),
                          [&](int64_t begin, int64_t end) { multiply_strided<K>(p, begin, end); });
    }
  }
  if constexpr (std::is_same_v<typename K::Acc, float>) {
    if (p.m <= kDotMost<typename P::Src> && p.a_k == 1 && p.b_k == 1) {
      const int64_t strips = ceil_div(p.n, kTileCols<MulF32>), each = max64(1, p.m * p.k * kTileCols<MulF32>);
      return parallel_for(strips, ceil_div(kDotWork, each),
                          [&](int64_t begin, int64_t end) { multiply_dots<false>(p, begin, end); });
    }
  }
  const int64_t per_strip = max64(1, ceil_div(p.k, K::kDepth) * kTileCols<K> * int64_t(sizeof(typename K::Unit)));
  // Parts of a float32 take more than it does: where memory is short, fewer columns at a time.
  const int64_t together = cpu::LeanMemory::active() ? kPackedBytes / 32 : kPackedBytes;
  const int64_t chunk = max64(2, together / per_strip) * kTileCols<K>;
  if constexpr (std::is_same_v<K, MulF32> && sizeof(typename P::Src) == 4) {
    const Lies lies = which_lies<K>(p);
    if (lies == Lies::B) {
      for (int64_t r = 0; r < p.m; r += chunk) {
        P part = p;
        part.m = min64(chunk, p.m - r);
        part.a += r * p.a_m;
        part.e = rows(p.e, r);
        multiply_rows_of_b(part);
      }
      return;
    }
    if (lies == Lies::A) {
      for (int64_t c0 = 0; c0 < p.n; c0 += chunk) {
        P part = p;
        part.n = min64(chunk, p.n - c0);
        part.b += c0 * p.b_n;
        part.e = columns(p.e, c0);
        multiply_rows_of_a(part);
      }
      return;
    }
  }
  for (int64_t c0 = 0; c0 < p.n; c0 += chunk) {
    P part = p;
    part.n = min64(chunk, p.n - c0);
    part.b += c0 * p.b_n;
    part.e = columns(p.e, c0);
    PackedShape<K> s(p.k, part.n);
    auto* bp = static_cast<typename K::Unit*>(scratch(s.bytes(), kSlotB));
    pack_whole_b<K>(part, s, bp);
    multiply_prepacked<K>(part, s, bp);
  }
}

}  // namespace SF_ISA
}  // namespace sf
