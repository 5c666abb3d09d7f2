// The transforms of Winograd's minimal filtering F(4x4, 3x3) (Lavin and Gray, arXiv 1509.09308), on vectors of
// channels. Included only by *.cpu.cpp files; everything lives in namespace sf::SF_ISA.
//
//   y = A' [ (G w G') * (B' x B) ] A        x 6x6 input tile, w 3x3, y 4x4 output tile, * per element, summed over
//                                           channels
//
// Interpolation points 0, +-5/8, +-3/2 and infinity: against the usual 0, +-1, +-2 the error of 320 channels falls from
// 4.0e-6 to 1.5e-6 relative RMS (direct summation in float32: 1.0e-6).
#pragma once
#include "scaffolding/backend/cpu/simd.h"

namespace sf {
namespace SF_ISA {

inline constexpr int kTile = 4, kInput = 6, kPoints = kInput * kInput;

inline constexpr float kA = 0.625f, kB = 1.5f;
inline constexpr float kA2 = kA * kA, kB2 = kB * kB, kA3 = kA2 * kA, kB3 = kB2 * kB;
inline constexpr float kN0 = 1 / (kA2 * kB2), kNa = 1 / (2 * kA2 * (kA2 - kB2)), kNb = 1 / (2 * kB2 * (kB2 - kA2));

// v = B' d
SF_INLINE void transform_input(const vf (&d)[6], vf (&v)[6]) {
  vf sa = fma(d[2], vf(-kB2), d[4]), ta = fma(d[1], vf(-kB2), d[3]);
  vf sb = fma(d[2], vf(-kA2), d[4]), tb = fma(d[1], vf(-kA2), d[3]);
  v[0] = fma(d[0], vf(kA2 * kB2), fma(d[2], vf(-(kA2 + kB2)), d[4]));
  v[1] = fma(ta, vf(kA), sa);
  v[2] = fma(ta, vf(-kA), sa);
  v[3] = fma(tb, vf(kB), sb);
  v[4] = fma(tb, vf(-kB), sb);
  v[5] = fma(d[1], vf(kA2 * kB2), fma(d[3], vf(-(kA2 + kB2)), d[5]));
}
// u = G g without the rows' factors N0, Na, Nb, which transform_output applies:
// there are fewer products than weights to be transformed.
SF_INLINE void transform_weight(const vf (&g)[3], vf (&u)[6]) {
  vf ea = fma(g[2], vf(kA2), g[0]), eb = fma(g[2], vf(kB2), g[0]);
  u[0] = g[0];
  u[1] = fma(g[1], vf(kA), ea);
  u[2] = fma(g[1], vf(-kA), ea);
  u[3] = fma(g[1], vf(kB), eb);
  u[4] = fma(g[1], vf(-kB), eb);
  u[5] = g[2];
}
// y = A' N m
SF_INLINE void transform_output(const vf (&m)[6], vf (&y)[4]) {
  vf p = m[1] + m[2], q = m[1] - m[2], r = m[3] + m[4], s = m[3] - m[4];
  y[0] = fma(m[0], vf(kN0), fma(p, vf(kNa), vf(kNb) * r));
  y[1] = fma(q, vf(kNa * kA), vf(kNb * kB) * s);
  y[2] = fma(p, vf(kNa * kA2), vf(kNb * kB2) * r);
  y[3] = fma(q, vf(kNa * kA3), fma(s, vf(kNb * kB3), m[5]));
}
// m = A y: the transpose of transform_output, for the gradient of the weight
SF_INLINE void transform_gradient(const vf (&y)[4], vf (&m)[6]) {
  vf ea = fma(y[2], vf(kA2), y[0]), oa = fma(y[3], vf(kA3), vf(kA) * y[1]);
  vf eb = fma(y[2], vf(kB2), y[0]), ob = fma(y[3], vf(kB3), vf(kB) * y[1]);
  m[0] = y[0];
  m[1] = ea + oa;
  m[2] = ea - oa;
  m[3] = eb + ob;
  m[4] = eb - ob;
  m[5] = y[3];
}
// g = G' u: the transpose of transform_weight
SF_INLINE void transform_weight_back(const vf (&u)[6], vf (&g)[3]) {
  vf p = u[1] + u[2], q = u[1] - u[2], r = u[3] + u[4], s = u[3] - u[4];
  g[0] = fma(u[0], vf(kN0), fma(p, vf(kNa), vf(kNb) * r));
  g[1] = fma(q, vf(kNa * kA), vf(kNb * kB) * s);
  g[2] = fma(p, vf(kNa * kA2), fma(r, vf(kNb * kB2), u[5]));
}

// A column of a tile, where `from` gives element (row, column); then a row of what became of them, which `to` takes.
template <int kIn, int kOut, class From, class One>
SF_INLINE void transform_column(int c, const From& from, vf (&half)[kOut][kIn], const One& one) {
  vf a[kIn], b[kOut];
#pragma GCC unroll 10
  for (int r = 0; r < kIn; ++r) a[r] = from(r, c);
  one(a, b);
#pragma GCC unroll 10
  for (int r = 0; r < kOut; ++r) half[r][c] = b[r];
}
template <int kIn, int kOut, class To, class One>
SF_INLINE void transform_row(int r, const vf (&half)[kOut][kIn], const To& to, const One& one) {
  vf b[kOut];
  one(half[r], b);
#pragma GCC unroll 10
  for (int c = 0; c < kOut; ++c) to(r, c, b[c]);
}
// Both dimensions: kIn x kIn becomes kOut x kOut.
template <int kIn, int kOut, class From, class To, class One>
SF_INLINE void transform_2d(const From& from, const To& to, const One& one) {
  vf half[kOut][kIn];
#pragma GCC unroll 6
  for (int c = 0; c < kIn; ++c) transform_column(c, from, half, one);
#pragma GCC unroll 6
  for (int r = 0; r < kOut; ++r) transform_row(r, half, to, one);
}

// What a convolution of pictures is made of: this, or winograd_8.h's.
struct Form4 {
  static constexpr int kTile = SF_ISA::kTile, kInput = SF_ISA::kInput, kPoints = SF_ISA::kPoints;
  static constexpr int64_t kWeightCycles = 110;  // as measured with AVX-512, to transform 16 weights
  // Channels of weights that are transformed together, times the kernel's frames: kPoints * 128 * 32 * 4 = 590 KB of a
  // 1 MB L2. With 8 lanes every sum is one chain over a block: the relative RMS error of 128 channels and more is
  // 1.06e-6 with blocks of 128 and under 1e-6 with 96.
  static constexpr int64_t kChannelBlock = kLanes < 16 ? 96 : 128;
  // v of one round of tiles: 128 channels at 256x256 take 18 ms, 28 with 16 MB
  static constexpr int64_t kTransformedBytes = int64_t(6) << 20;
  // with few tiles, transforming the weights anew for each round costs more
  static constexpr int64_t kLeastTiles = 64, kFairTiles = 128;
  static constexpr int64_t kMostRows = int64_t(1) << 40;  // of sums at a time: fewer are slower

  SF_INLINE static void input(const vf (&d)[kInput], vf (&v)[kInput]) { transform_input(d, v); }
  SF_INLINE static void weight(const vf (&g)[3], vf (&u)[kInput]) { transform_weight(g, u); }
  SF_INLINE static void output(const vf (&m)[kInput], vf (&y)[kTile]) { transform_output(m, y); }
  template <int kIn, int kOut, class From, class To, class One>
  SF_INLINE static void in_two(const From& from, const To& to, const One& one) {
    transform_2d<kIn, kOut>(from, to, one);
  }
};

}  // namespace SF_ISA
}  // namespace sf
