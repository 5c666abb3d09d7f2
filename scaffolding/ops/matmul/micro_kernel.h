// The innermost loop of every matrix product on the CPU: a tile of c stays in registers while k runs.
// Included only by *.cpu.cpp files; everything lives in namespace sf::SF_ISA.
//
// Tile shape, AVX-512: 14 rows x 2 vectors = 28 accumulators, 2 registers of b, 1 broadcast of a: 31 of 32. Each step
// of k issues 28 multiply-adds and 16 loads, so two FMA pipes are busy for 14 cycles and two load ports for 8.
// AVX2 (16 registers): 6 x 2. Without FMA: 4 x 2, the product needs a register.
// Every smaller height is compiled too: 32 rows run as 11 + 11 + 10, not as 14 + 14 + 4 padded to 14.
#pragma once
#include "scaffolding/backend/cpu/simd.h"

namespace sf {
namespace SF_ISA {

#if defined(__AVX512F__)
inline constexpr int kTileRows = 14, kTileVecs = 2, kStridedRows = 8;
#elif defined(__AVX2__)
inline constexpr int kTileRows = 6, kTileVecs = 2, kStridedRows = 6;
#else
inline constexpr int kTileRows = 4, kTileVecs = 2, kStridedRows = 4;
#endif
inline constexpr int kVecBytes = kLanes * 4;

// What products of most kinds of numbers have in common.
struct Packing {
  static constexpr int kPanelRows = kTileRows;  // the most rows of a that are multiplied at once
  static constexpr int64_t kRowStep = 1;        // rows are dealt to threads and blocks in whole steps
  // Row `q` of `panels` panels of so many rows: equal heights.
  SF_INLINE static int64_t panel(int64_t rows, int64_t q, int64_t panels) { return rows * q / panels; }
  // k goes in blocks of at most kDepthBlock units: a strip of b is then 128 KB, from L2 as fast as from L1. Longer
  // products are cut into blocks of about kDepthPart (at n = 2048 2 % faster than of 1024). Sums of all but the last
  // block rest in at most kSumBytes.
  static constexpr int64_t kDepthBlock = 1024, kDepthPart = 704, kSumBytes = INT64_MAX;
  // A packed block of a: beside two strips of b and the lines of c it keeps its place in an L2 of 1 MB (450 KB:
  // 1-2 % slower on Zen 5).
  static constexpr int64_t kBlockBytes = kLanes == 16 ? 320 << 10 : 8 * kTileRows * kDepthBlock * 4;
  using Scope = struct {};  // what a thread holds while it multiplies
};

// How numbers multiply. A Unit is what one lane of a packed operand holds: one float, one double, or a pair of bfloat16
// that are neighbours along k. kDepth is the values of k in a unit.
struct MulF32 : Packing {
  using Left = MulF32;
  using Unit = float;
  using Acc = float;
  static constexpr int kDepth = 1;
  typedef float Vec __attribute__((vector_size(kVecBytes)));
  SF_INLINE static Vec splat(Unit x) { return x - Vec{}; }
  SF_INLINE static Vec mul_add(Vec a, Vec b, Vec c) { return fma(vf(a), vf(b), vf(c)).v; }
};
struct MulF64 : Packing {
  using Left = MulF64;
  using Unit = double;
  using Acc = double;
  static constexpr int kDepth = 1;
  typedef double Vec __attribute__((vector_size(kVecBytes)));
  SF_INLINE static Vec splat(Unit x) { return x - Vec{}; }
  SF_INLINE static Vec mul_add(Vec a, Vec b, Vec c) {
#if defined(__AVX512F__)
    return (Vec)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c);
#elif defined(__FMA__)
    return (Vec)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c);
#else
    return a * b + c;
#endif
  }
};
#if defined(__AVX512BF16__)
struct MulBF16 : Packing {
  using Left = MulBF16;
  using Unit = uint32_t;  // two bfloat16, the even k in the low half
  using Acc = float;
  static constexpr int kDepth = 2;
  typedef float Vec __attribute__((vector_size(kVecBytes)));
  SF_INLINE static Vec splat(Unit x) { return (Vec)_mm512_set1_epi32(int(x)); }
  SF_INLINE static Vec mul_add(Vec a, Vec b, Vec c) {
    return (Vec)_mm512_dpbf16_ps((__m512)c, (__m512bh)(__m512)a, (__m512bh)(__m512)b);
  }
};
#endif

template <class K> inline constexpr int kVecLanes = kVecBytes / int(sizeof(typename K::Acc));
template <class K> inline constexpr int kTileCols = kTileVecs* kVecLanes<K>;

template <class K> SF_INLINE typename K::Vec load_vec(const void* p) {
  typename K::Vec v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}
template <class K> SF_INLINE void store_vec(void* p, typename K::Vec v) { __builtin_memcpy(p, &v, sizeof v); }

// c[i][0 .. NV vectors) = sum over `depth` units of a[i] * b, plus rest[i] if rest is given. Whole vectors are stored.
//   kPacked: a is [depth][MR], b is [depth][kTileCols]; the strides are ignored.
//   else:    a[i * a_row + k * a_step], b[k * b_step]: operands are read where they are, for few rows.
template <class K, int MR, int NV, bool kPacked>
[[gnu::noinline]] void tile(int64_t depth, const typename K::Unit* a, int64_t a_row, int64_t a_step,
                            const typename K::Unit* b, int64_t b_step, typename K::Acc* c, int64_t c_row,
                            const typename K::Acc* rest, int64_t rest_row, const char* ahead, int64_t ahead_step) {
  using Vec = typename K::Vec;
  constexpr int L = kVecLanes<K>;
  Vec acc[MR][NV];
#pragma GCC unroll 16
  for (int i = 0; i < MR; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < NV; ++j) acc[i][j] = Vec{};
      // What the end of the tile touches, k steps from now: every line of c and of rest.
#pragma GCC unroll 16
  for (int i = 0; i < MR; ++i)
    for (int j = 0; j < NV * L; j += 64 / int(sizeof(*c))) __builtin_prefetch(c + i * c_row + j, 1);
  if (rest && rest != c) {
#pragma GCC unroll 16
    for (int i = 0; i < MR; ++i)
      for (int j = 0; j < NV * L; j += 64 / int(sizeof(*c))) __builtin_prefetch(rest + i * rest_row + j);
  }
  for (int64_t k = 0; k < depth; ++k) {
    if constexpr (kPacked) {
      __builtin_prefetch(ahead, 0, 2);
      ahead += ahead_step;
    }
    Vec bv[NV];
#pragma GCC unroll 4
    for (int j = 0; j < NV; ++j) bv[j] = load_vec<K>(b + j * L);
#pragma GCC unroll 16
    for (int i = 0; i < MR; ++i) {
      Vec av = K::splat(kPacked ? a[i] : a[i * a_row]);
#pragma GCC unroll 4
      for (int j = 0; j < NV; ++j) acc[i][j] = K::mul_add(av, bv[j], acc[i][j]);
    }
    a += kPacked ? MR : a_step;
    b += kPacked ? kTileCols<K> : b_step;
  }
#pragma GCC unroll 16
  for (int i = 0; i < MR; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < NV; ++j) {
      if (rest) acc[i][j] += load_vec<K>(rest + i * rest_row + j * L);
      store_vec<K>(c + i * c_row + j * L, acc[i][j]);
    }
}

template <class K>
using TileFn = void (*)(int64_t depth, const typename K::Unit* a, int64_t a_row, int64_t a_step,
                        const typename K::Unit* b, int64_t b_step, typename K::Acc* c, int64_t c_row,
                        const typename K::Acc* rest, int64_t rest_row, const char* ahead, int64_t ahead_step);

template <class K, bool kPacked> struct TileFor {
  template <int MR = (kPacked ? kTileRows : kStridedRows)> SF_INLINE static TileFn<K> find(int rows, int vecs) {
    if constexpr (MR > 1)
      if (rows < MR) return find<MR - 1>(rows, vecs);
    return vecs == 1 ? &tile<K, MR, 1, kPacked> : &tile<K, MR, kTileVecs, kPacked>;
  }
};
// The kernel for `rows` in 1..MR, `vecs` in 1..kTileVecs.
template <class K, bool kPacked> [[gnu::noinline]] TileFn<K> tile_for(int rows, int vecs) {
  return TileFor<K, kPacked>::find(rows, vecs);
}

#if !defined(SF_AMX_ALONE)  // compiled once for an instruction set, in tiles.cpu.cpp; *.amx.cpp have their own
extern template TileFn<MulF32> tile_for<MulF32, true>(int, int);
extern template TileFn<MulF32> tile_for<MulF32, false>(int, int);
extern template TileFn<MulF64> tile_for<MulF64, true>(int, int);
extern template TileFn<MulF64> tile_for<MulF64, false>(int, int);
#if defined(__AVX512BF16__)
extern template TileFn<MulBF16> tile_for<MulBF16, true>(int, int);
extern template TileFn<MulBF16> tile_for<MulBF16, false>(int, int);
#endif
#endif

}  // namespace SF_ISA
}  // namespace sf
