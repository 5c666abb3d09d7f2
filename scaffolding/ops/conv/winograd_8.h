// The transforms of Winograd's F(8x8, 3x3): 100 products for 64 results where F(4x4, 3x3), of which winograd.h tells,
// takes 144. Over 0, +-3/8, +-3/4, +-5/4, +-2 and infinity the relative RMS error of 320 channels is 4e-5, too much for
// float32 and a thirtieth of what rounding a result to bfloat16 adds.
// Included only by *.cpu.cpp files; everything lives in namespace sf::SF_ISA.
#pragma once
#include "scaffolding/ops/conv/winograd.h"

namespace sf {
namespace SF_ISA {

struct Form8 {
  static constexpr int kTile = 8, kInput = 10, kPoints = kInput * kInput, kPairs = 4;
  static constexpr int64_t kWeightCycles = 300;
  // kPoints * 64 * 32 * 4 = 819 KB of weights, and as much of sums: neither fits L2 beside the other, but sums that are
  // read and written seldom and weights that many rows share cost the least (Zen 4, one core, 128 channels at 256x256:
  // 52 ms, 58 with 48 channels and any number of rows).
  static constexpr int64_t kChannelBlock = 64, kMostRows = 64;
  static constexpr int64_t kTransformedBytes = int64_t(12) << 20, kLeastTiles = 32, kFairTiles = 64;

  // The points are 0, kPoint[0], -kPoint[0], kPoint[1], .., infinity.
  static constexpr double kPoint[kPairs] = {0.375, 0.75, 1.25, 2};
  // Coefficient `power` of the product of x - p^2 over all pairs but `without`.
  static constexpr double coefficient(int power, int without) {
    double c[kPairs + 2] = {1};
    int degree = 0;
    for (int k = 0; k < kPairs; ++k) {
      if (k == without) continue;
      for (int i = ++degree; i > 0; --i) c[i] = c[i - 1] - kPoint[k] * kPoint[k] * c[i];
      c[0] *= -kPoint[k] * kPoint[k];
    }
    return c[power];
  }
  // Of a pair's results, times its point to the power j.
  static constexpr double factor(int pair, int j) {
    const double square = kPoint[pair] * kPoint[pair];
    double product = 2 * square, power = 1;
    for (int k = 0; k < kPairs; ++k)
      if (k != pair) product *= square - kPoint[k] * kPoint[k];
    for (int i = 0; i < j; ++i) power *= kPoint[pair];
    return power / product;
  }
  template <int kWithout> SF_INLINE static vf sum(const vf (&d)[kInput], int first) {
    constexpr float c0 = float(coefficient(0, kWithout)), c1 = float(coefficient(1, kWithout)),
                    c2 = float(coefficient(2, kWithout)), c3 = float(coefficient(3, kWithout));
    const vf low = fma(d[first + 2], vf(c1), vf(c0) * d[first]);
    if constexpr (kWithout < 0) return fma(d[first + 6], vf(c3), fma(d[first + 4], vf(c2), low)) + d[first + 8];
    else return fma(d[first + 4], vf(c2), low) + d[first + 6];
  }
  template <int kPair> SF_INLINE static void input_pair(const vf (&d)[kInput], vf (&v)[kInput]) {
    constexpr float p = float(kPoint[kPair]);
    const vf even = sum<kPair>(d, 2), odd = sum<kPair>(d, 1);
    v[1 + 2 * kPair] = fma(odd, vf(p), even);
    v[2 + 2 * kPair] = fma(odd, vf(-p), even);
  }
  // v = B' d
  SF_INLINE static void input(const vf (&d)[kInput], vf (&v)[kInput]) {
    v[0] = sum<-1>(d, 0);
    input_pair<0>(d, v), input_pair<1>(d, v), input_pair<2>(d, v), input_pair<3>(d, v);
    v[9] = sum<-1>(d, 1);
  }
  // u = G g without the rows' factors, as transform_weight
  SF_INLINE static void weight(const vf (&g)[3], vf (&u)[kInput]) {
    u[0] = g[0];
#pragma GCC unroll 4
    for (int k = 0; k < kPairs; ++k) {
      const vf even = fma(g[2], vf(float(kPoint[k] * kPoint[k])), g[0]);
      u[1 + 2 * k] = fma(g[1], vf(float(kPoint[k])), even);
      u[2 + 2 * k] = fma(g[1], vf(float(-kPoint[k])), even);
    }
    u[9] = g[2];
  }
  template <int j> SF_INLINE static vf output_row(const vf (&m)[kPairs]) {
    constexpr float f0 = float(factor(0, j)), f1 = float(factor(1, j)), f2 = float(factor(2, j)),
                    f3 = float(factor(3, j));
    return fma(m[3], vf(f3), fma(m[2], vf(f2), fma(m[1], vf(f1), vf(f0) * m[0])));
  }
  // y = A' N m
  SF_INLINE static void output(const vf (&m)[kInput], vf (&y)[kTile]) {
    constexpr float n0 = float(1 / coefficient(0, -1));
    vf even[kPairs], odd[kPairs];
#pragma GCC unroll 4
    for (int k = 0; k < kPairs; ++k) even[k] = m[1 + 2 * k] + m[2 + 2 * k], odd[k] = m[1 + 2 * k] - m[2 + 2 * k];
    y[0] = fma(m[0], vf(n0), output_row<0>(even)), y[1] = output_row<1>(odd);
    y[2] = output_row<2>(even), y[3] = output_row<3>(odd);
    y[4] = output_row<4>(even), y[5] = output_row<5>(odd);
    y[6] = output_row<6>(even), y[7] = output_row<7>(odd) + m[9];
  }

  // As transform_2d, a column or row at a time: a tile does not fit in registers.
  template <int kIn, int kOut, class From, class To, class One>
  SF_INLINE static void in_two(const From& from, const To& to, const One& one) {
    vf half[kOut][kIn];
#pragma GCC unroll 1
    for (int c = 0; c < kIn; ++c) transform_column(c, from, half, one);
#pragma GCC unroll 1
    for (int r = 0; r < kOut; ++r) transform_row(r, half, to, one);
  }
};

}  // namespace SF_ISA
}  // namespace sf
