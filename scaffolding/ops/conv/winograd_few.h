// A Winograd convolution of few tiles, as a UNet's deep levels are: there is more to transforming weights than to
// multiplying by them, and a transformed weight is used for so few tiles that a way through the cache costs as much.
// Here it never leaves its register.
// Included only by *.cpu.cpp files; everything lives in namespace sf::SF_ISA.
//
// Of 16 outputs x 16 channels of weights the columns are transformed, G w, into halves[row of the point][c][tap
// column][o] (18 KB, L1). Then for 4 tiles and one row of points at a time, 6 x 4 sums stay in registers while the
// channels go by: of each the row's other transform, (G w) G', is made on the way.
#pragma once
#include "scaffolding/ops/conv/winograd_product.h"

namespace sf {
namespace SF_ISA {
#if defined(__AVX512F__)

inline constexpr int kFewGroup = 4;                           // tiles whose sums are in registers together
inline constexpr int kFewChannels = 16;                       // channels of one pass through L1
inline constexpr int64_t kFewSums = kPoints * kFewGroup * L;  // floats

// halves[((r * 16 + c) * 3 + s) * L] of outputs o0 .. o0 + L and channels c0 .. c0 + 16.
template <class T>
[[gnu::noinline]] static void transform_columns(const Filter<T>& w, int64_t o0, int64_t c0, float* halves) {
  alignas(64) float raw[kFewChannels * 9 * L];
  const T* from = w.at(o0, c0);
#pragma GCC unroll 1
  for (int k = 0; k < kFewChannels * 9; k += L) {
    MulF32::Vec r[L];
#pragma GCC unroll 16
    for (int i = 0; i < L; ++i) r[i] = load_full(from + i * w.out + k);
    transpose<MulF32::Vec, L>(r);
#pragma GCC unroll 16
    for (int i = 0; i < L; ++i) store_vec<MulF32>(raw + (k + i) * L, r[i]);
  }
#pragma GCC unroll 1
  for (int c = 0; c < kFewChannels; ++c)
#pragma GCC unroll 3
    for (int s = 0; s < 3; ++s) {
      const float* tap = raw + (c * 9 + s) * L;
      vf g[3] = {load(tap), load(tap + 3 * L), load(tap + 6 * L)}, h[6];
      transform_weight(g, h);
#pragma GCC unroll 6
      for (int r = 0; r < kInput; ++r) store(halves + ((r * kFewChannels + c) * 3 + s) * L, h[r]);
    }
}

// sums[s][tile][L] of one row of points += over 16 channels of u[s] * v[s][tile][c]; `add`: to what is there. Two lines
// ahead are asked for at each channel.
[[gnu::noinline]] static void product_few(const float* halves, const float* v, float* sums, bool add, Ahead weights) {
  constexpr int kCount = kInput * kFewGroup;
  vf sum[kCount];
#pragma GCC unroll 24
  for (int i = 0; i < kCount; ++i) sum[i] = vf(0.f);
#pragma GCC unroll 1
  for (int c = 0; c < kFewChannels; ++c) {
    __builtin_prefetch(weights.at, 0, 2);
    __builtin_prefetch(weights.at + weights.step / 2, 0, 2);
    weights.at += weights.step;
    auto multiply = [&](int s, vf u) __attribute__((always_inline)) {
#pragma GCC unroll 4
      for (int t = 0; t < kFewGroup; ++t)
        sum[s * kFewGroup + t] = fma(vf(v[(s * kFewGroup + t) * L]), u, sum[s * kFewGroup + t]);
    };
    const vf g0 = load(halves), g1 = load(halves + L), g2 = load(halves + 2 * L);
    multiply(0, g0);
    multiply(5, g2);
    const vf ea = fma(g2, vf(kA2), g0), eb = fma(g2, vf(kB2), g0);
    multiply(1, fma(g1, vf(kA), ea));
    multiply(2, fma(g1, vf(-kA), ea));
    multiply(3, fma(g1, vf(kB), eb));
    multiply(4, fma(g1, vf(-kB), eb));
    ++v, halves += 3 * L;
  }
#pragma GCC unroll 24
  for (int i = 0; i < kCount; ++i) store(sums + i * L, add ? sum[i] + load(sums + i * L) : sum[i]);
}

#endif
}  // namespace SF_ISA
}  // namespace sf
