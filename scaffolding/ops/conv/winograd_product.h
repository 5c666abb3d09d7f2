// The products of a Winograd convolution, for one point of the tile: m[tile][o] += v[tile][c] * u[c][o], summed over
// the kernel's frames too where there are any, and the transformed weights u they read.
// Included only by *.cpu.cpp files; everything lives in namespace sf::SF_ISA.
#pragma once
#include "scaffolding/ops/conv/winograd.h"
#include "scaffolding/ops/matmul/packed_gemm.h"

namespace sf {
namespace SF_ISA {

inline constexpr int L = kLanes, NR = kTileCols<MulF32>;  // a strip: NR output channels
// Distance of two planes in floats: an odd number of cache lines, so that 36 planes are in as many L1 sets.
SF_INLINE int64_t plane_of(int64_t floats) { return (ceil_div(floats, 16) | 1) * 16; }

// Memory to be asked for while a product runs, `step` bytes further at each of its channels: it comes from L3 or memory
// while the product is in L1.
struct Ahead {
  const char* at;
  int64_t step;
};

// What a product reads: rows of v for each frame of the kernel, `frame` floats apart.
struct ProductRows {
  const float* data;
  int64_t row, frame;
  int64_t taps;  // frames of the kernel
};

// m[i][0 .. NR) = sum over taps and channels of v[t * v.frame + i * v.row + c] * u[t][c][..], plus what m holds if
// `add`. `tiles` come to L1, `weights` to L2.
template <int kRows, int kVecs>
[[gnu::noinline]] static void product(int64_t depth, ProductRows from, const float* u, float* m, bool add, Ahead tiles,
                                      Ahead weights) {
  using Vec = MulF32::Vec;
  Vec sum[kRows][kVecs];
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < kVecs; ++j) sum[i][j] = Vec{};
  for (int64_t t = 0; t < from.taps; ++t) {
    const float* v = from.data + t * from.frame;
    for (int64_t c = 0; c < depth; ++c) {
      __builtin_prefetch(tiles.at, 0, 3);
      __builtin_prefetch(weights.at, 0, 2);
      tiles.at += tiles.step, weights.at += weights.step;
      Vec uv[kVecs];
#pragma GCC unroll 4
      for (int j = 0; j < kVecs; ++j) uv[j] = load_vec<MulF32>(u + j * L);
#pragma GCC unroll 16
      for (int i = 0; i < kRows; ++i) {
        const Vec a = MulF32::splat(v[i * from.row]);
#pragma GCC unroll 4
        for (int j = 0; j < kVecs; ++j) sum[i][j] = MulF32::mul_add(a, uv[j], sum[i][j]);
      }
      ++v, u += NR;
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < kVecs; ++j) {
      float* to = m + i * NR + j * L;
      if (add) sum[i][j] += load_vec<MulF32>(to);
      store_vec<MulF32>(to, sum[i][j]);
    }
}

using ProductFn = void (*)(int64_t depth, ProductRows from, const float* u, float* m, bool add, Ahead tiles,
                           Ahead weights);
template <int kRows = kStridedRows> SF_INLINE ProductFn product_for(int rows, int vecs) {
  if constexpr (kRows > 1)
    if (rows < kRows) return product_for<kRows - 1>(rows, vecs);
  return vecs == 1 ? &product<kRows, 1> : &product<kRows, kTileVecs>;
}

// The weight of y[o] from x[c] by tap; turned: the taps in reverse, for the gradient of x. A kernel over time too has
// `frames` pictures of taps, of which the product reads `taps` from `first` on: others meet only zeros.
template <class T> struct Filter {
  const T* data;
  int64_t out, in, down, across;  // strides
  bool turned;
  int64_t frames = 1, frame = 0, taps = 1, first = 0;  // `frame` is a stride
  SF_INLINE const T* at(int64_t o, int64_t c) const { return data + o * out + c * in; }
  SF_INLINE int64_t picture(int64_t t) const { return turned ? frames - 1 - first - t : first + t; }
  SF_INLINE bool taps_together() const { return across == 1 && down == 3; }
  SF_INLINE int64_t numbers() const { return 9 * frames; }  // of a channel
  SF_INLINE bool contiguous() const {                       // all channels of an output in a row
    return taps_together() && in == numbers() && (frames == 1 || frame == 9);
  }
};
inline constexpr int64_t kMostTaps = 3;  // in time

// u[point][0 .. L) of 9 taps `step` apart.
template <class Form> SF_INLINE void transform_taps(const float* tap, int64_t step, float* u, int64_t plane) {
  constexpr int kInput = Form::kInput;
  auto one = [](const vf(&a)[3], vf(&b)[kInput]) __attribute__((always_inline)) { Form::weight(a, b); };
  Form::template in_two<3, kInput>([&](int r, int s) { return load(tap + (r * 3 + s) * step); },
                                   [&](int r, int s, vf v) { store(u + (r * kInput + s) * plane, v); }, one);
}

// u[point][tap in time][c - c0][strip] for input channels c0 .. c0 + depth and the strip of output channels from o0.
template <class Form, class T>
[[gnu::noinline]] static void transform_filter(const Filter<T>& w, int64_t o0, int cols, int64_t c0, int64_t depth,
                                               float* u, int64_t plane) {
  constexpr int64_t kGroup = 16;
  alignas(64) float raw[kGroup * 9 * (NR > kMostTaps * L ? NR : kMostTaps * L) + 64];
  const int vecs = cols <= L ? 1 : kTileVecs;
  for (int64_t c = 0; c < depth; c += kGroup) {
    const int64_t n = min64(kGroup, depth - c);
    if (w.contiguous() && cols % L == 0) {  // the usual weights: L outputs x 16 channels of their taps, in L1
      const int64_t numbers = w.numbers();
      for (int j = 0; j < vecs; ++j) {
        const T* rows[L];
        for (int i = 0; i < L; ++i) rows[i] = w.at(o0 + j * L + i, c0 + c);
        for (int64_t k = 0; k < n * numbers; k += L) {
          MulF32::Vec r[L];
#pragma GCC unroll 16
          for (int i = 0; i < L; ++i) r[i] = load_full(rows[i] + k);
          transpose<MulF32::Vec, L>(r);
#pragma GCC unroll 16
          for (int i = 0; i < L; ++i) store_vec<MulF32>(raw + (k + i) * L, r[i]);
        }
        for (int64_t t = 0; t < w.taps; ++t)
          for (int64_t i = 0; i < n; ++i)
            transform_taps<Form>(raw + (i * numbers + w.picture(t) * 9 + (w.turned ? 8 : 0)) * L, w.turned ? -L : L,
                                 u + (t * depth + c + i) * NR + j * L, plane);
      }
      continue;
    }
    auto transform = [&](int64_t i, int64_t t, const float* taps, int64_t by_tap) {
      for (int j = 0; j < vecs; ++j)
        transform_taps<Form>(taps + (w.turned ? 8 * by_tap : 0) + j * L, w.turned ? -by_tap : by_tap,
                             u + (t * depth + c + i) * NR + j * L, plane);
    };
    const T* from = w.at(o0, c0 + c);
    if (w.contiguous() && w.frames == 1) {
      pack<MulF32>(raw, NR, from, w.out, 1, cols, n * 9);
      for (int64_t i = 0; i < n; ++i) transform(i, 0, raw + i * 9 * NR, NR);
    } else if (w.taps_together() && (w.frames == 1 || w.frame == 9)) {
      // Rows far apart, read a kilobyte at a time: the hardware's prefetcher sees no stream.
      for (int64_t i = kGroup; i < min64(2 * kGroup, depth - c); ++i)
        for (int64_t line = 0; line < cols * w.out; line += 64 / int64_t(sizeof(T)))
          __builtin_prefetch(from + i * w.in + line);
      for (int64_t i = 0; i < n; ++i) {
        pack<MulF32>(raw, NR, from + i * w.in, w.out, 1, cols, w.numbers());
        for (int64_t t = 0; t < w.taps; ++t) transform(i, t, raw + w.picture(t) * 9 * NR, NR);
      }
    } else {
      for (int64_t t = 0; t < w.taps; ++t) {
        for (int k = 0; k < 9; ++k)
          pack<MulF32>(raw + k * kGroup * NR, NR, from + w.picture(t) * w.frame + k / 3 * w.down + k % 3 * w.across,
                       w.out, w.in, cols, n);
        for (int64_t i = 0; i < n; ++i) transform(i, t, raw + i * NR, kGroup * NR);
      }
    }
  }
}

}  // namespace SF_ISA
}  // namespace sf
