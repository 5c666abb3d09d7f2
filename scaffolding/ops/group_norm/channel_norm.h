// Normalising by channel on the CPU, what group_norm and batch_norm share: statistics, application and gradients of
//   rows    [rows][C], channels-last: vectors run over channels, coefficients are arrays [C];
//   planes  [n] of one channel, NCHW: vectors run over space, coefficients are scalars.
// Included by group_norm.cpu.cpp and batch_norm.cpu.cpp only.
#pragma once
#include "scaffolding/backend/cpu/simd_short.h"

namespace sf {
namespace SF_ISA {

inline constexpr int64_t kPiece = 16384;      // elements of a plane under one shifted sum
inline constexpr int64_t kRowsPiece = 32768;  // the same for channels-last rows
// Elements between what is computed and what is fetched, 4 KiB: the hardware's prefetcher stops at every page.
template <class T> inline constexpr int64_t kWriteAhead = 4096 / int64_t(sizeof(T));

// count values with this mean and sum of squared deviations. Chan, Golub, LeVeque 1979: no cancellation when combined.
struct Moments {
  double mean = 0, m2 = 0, count = 0;
  SF_INLINE void add(double other_mean, double other_m2, double n) {
    double total = count + n, delta = other_mean - mean;
    mean += delta * (n / total);
    m2 += other_m2 + delta * delta * (count * n / total);
    count = total;
  }
};

// k rounded to T. Shifts are, so that x - shift has no more bits than T: otherwise thousands of 16-bit values, all with
// the same low bits after subtraction, would be rounded the same way by the adder (1e-5 in the mean of 16 Ki values).
template <class T> SF_INLINE static Vec<T> rounded(Vec<T> k) {
  T t[kVec<T>];
  store(t, k);
  return load(t);
}

#if defined(__AVX512BF16__)
// Sums of bfloat16 numbers and of their squares, two to a lane: vdpbf16ps adds exact products, so that 2 instructions
// do for 32 numbers what 10 do on widened ones. There is no shift: a sum of 256 numbers of one exponent and of their
// squares is exact, and where numbers vary, what float32 loses, 1e-6 of mean^2, is below what their own rounding to
// bfloat16 has put into the variance.
SF_INLINE static void add_pairs(const BFloat16* x, int n, vf& sum, vf& squares) {
  const __m512i v = _mm512_maskz_loadu_epi16(__mmask32(0xffffffffu >> (32 - n)), x);
  sum = (vf_raw)_mm512_dpbf16_ps((__m512)sum.v, (__m512bh)v, (__m512bh)_mm512_set1_epi16(0x3f80));
  squares = (vf_raw)_mm512_dpbf16_ps((__m512)squares.v, (__m512bh)v, (__m512bh)v);
}
SF_INLINE static void moments_of_sums(double sum, double squares, double per_number, double* out) {
  double mean = sum * per_number, m2 = squares - sum * mean;
  out[0] = mean;
  out[1] = m2 > 0 ? m2 : 0;
}
#endif

// Mean and m2 of x[n], n <= kPiece: sums of x - shift, the shift being the mean of the first vector.
template <class T> static void plane_moments(const T* x, int64_t n, double* out) {
  using V = Vec<T>;
  using A = Acc<T>;
#if defined(__AVX512BF16__)
  if constexpr (std::is_same_v<T, BFloat16>) {
    vf s[4] = {0.f, 0.f, 0.f, 0.f}, q[4] = {0.f, 0.f, 0.f, 0.f};
    int64_t i = 0;
    for (; i + 128 <= n; i += 128)
      for (int k = 0; k < 4; ++k) add_pairs(x + i + 32 * k, 32, s[k], q[k]);
    for (; i < n; i += 32) add_pairs(x + i, n - i < 32 ? int(n - i) : 32, s[0], q[0]);
    moments_of_sums(reduce_add((s[0] + s[1]) + (s[2] + s[3])), reduce_add((q[0] + q[1]) + (q[2] + q[3])),
                    1.0 / double(n), out);
    return;
  }
#endif
  constexpr int L = kVec<T>;
  int lead = n < L ? int(n) : L;
  A k = scalar(narrowed<T>(reduce_add(load_n(x, lead)) / A(lead)));
  V shift(k), s0(0.f), s1(0.f), q0(0.f), q1(0.f);
  auto step = [&](int64_t i, int lanes, V& s, V& q) __attribute__((always_inline)) {
    V d = load_n(x + i, lanes, k) - shift;
    s += d;
    q = fma(d, d, q);
  };
  int64_t i = 0;
  V s2(0.f), s3(0.f), q2(0.f), q3(0.f);
  for (; i + 4 * L <= n; i += 4 * L) {
    step(i, L, s0, q0);
    step(i + L, L, s1, q1);
    step(i + 2 * L, L, s2, q2);
    step(i + 3 * L, L, s3, q3);
  }
  for (; i + L <= n; i += L) step(i, L, s0, q0);
  if (L > 1 && i < n) step(i, int(n - i), s0, q0);
  double s = reduce_add((s0 + s1) + (s2 + s3)), q = reduce_add((q0 + q1) + (q2 + q3)), m2 = q - s * s / double(n);
  out[0] = double(k) + s / double(n);
  out[1] = m2 > 0 ? m2 : 0;
}

// Rows whose sums are taken in one visit to the accumulators. Many channels: one row, since memory then is read in
// order (a third faster than eight rows abreast); few: eight,
// since otherwise a row would wait for the last one's sums to come back from L1.
template <class T> SF_INLINE int rows_abreast(int64_t C) { return C * int64_t(sizeof(T)) > 512 ? 1 : 8; }

#if defined(__AVX512BF16__)
template <int kRows>
static int64_t add_row_pairs(const BFloat16* x, int64_t rows, int64_t C, float* sum, float* squares) {
  int64_t r = 0;
  for (; r + kRows <= rows; r += kRows) {
    const BFloat16* from = x + r * C;
    auto step = [&](int64_t i, int n) __attribute__((always_inline)) {
      for (int j = 0; j < kRows; ++j) __builtin_prefetch(from + j * C + i + kWriteAhead<BFloat16>);
      vf s = load_n(sum + i / 2, n / 2), q = load_n(squares + i / 2, n / 2);
      for (int j = 0; j < kRows; ++j) add_pairs(from + j * C + i, n, s, q);
      store_n(sum + i / 2, s, n / 2);
      store_n(squares + i / 2, q, n / 2);
    };
    int64_t i = 0;
    for (; i + 32 <= C; i += 32) step(i, 32);
    if (i < C) step(i, int(C - i));
  }
  return r;
}
// For groups of an even number of channels: a pair is of one group.
static void rows_moments_of_pairs(const BFloat16* x, int64_t rows, int64_t C, int64_t G, float* work, double* out) {
  float *sum = work, *squares = work + C / 2;
  for (int64_t c = 0; c < C; ++c) work[c] = 0;
  int64_t r = rows_abreast<BFloat16>(C) == 8 ? add_row_pairs<8>(x, rows, C, sum, squares) : 0;
  add_row_pairs<1>(x + r * C, rows - r, C, sum, squares);
  const int64_t half = C / G / 2;
  const double per_number = 1.0 / double(rows * 2 * half);
  for (int64_t g = 0; g < G; ++g) {
    double s = 0, q = 0;
    for (int64_t k = g * half; k < (g + 1) * half; ++k) {
      s += double(sum[k]);
      q += double(squares[k]);
    }
    moments_of_sums(s, q, per_number, out + 2 * g);
  }
}
#endif

template <class T, int kRows>
static int64_t add_rows(const T* x, int64_t rows, int64_t C, const Acc<T>* shift, Acc<T>* sum, Acc<T>* squares) {
  using V = Vec<T>;
  int64_t r = 0;
  for (; r + kRows <= rows; r += kRows)
    each_vector<T>(
        C,
        [&](int64_t i) __attribute__((always_inline)) {
          for (int j = 0; j < kRows; ++j) __builtin_prefetch(x + (r + j) * C + i + kWriteAhead<T>);
        },
        [&](int64_t i, int n) __attribute__((always_inline)) {
          V k = load_n(shift + i, n), s = load_n(sum + i, n), q = load_n(squares + i, n);
          for (int j = 0; j < kRows; ++j) {
            V d = load_n(x + (r + j) * C + i, n) - k;
            s += d;
            q = fma(d, d, q);
          }
          store_n(sum + i, s, n);
          store_n(squares + i, q, n);
        });
  return r;
}

// Mean and m2 of each of the G groups of channels over x[rows][C]: out[G][2]. work[3 C].
template <class T> static void rows_moments(const T* x, int64_t rows, int64_t C, int64_t G, Acc<T>* work, double* out) {
  using V = Vec<T>;
  using A = Acc<T>;
  int64_t D = C / G;
#if defined(__AVX512BF16__)
  if constexpr (std::is_same_v<T, BFloat16>)
    if (D % 2 == 0) return rows_moments_of_pairs(x, rows, C, G, work, out);
#endif
  A *shift = work, *sum = work + C, *squares = work + 2 * C;
  int lead = rows < 4 ? int(rows) : 4;  // a channel's shift is the mean of its first four values
  each_vector<T>(
      C, [&](int64_t i, int n) __attribute__((always_inline)) {
        V k = load_n(x + i, n);
        for (int r = 1; r < lead; ++r) k += load_n(x + r * C + i, n);
        store_n(shift + i, rounded<T>(k * V(A(1) / A(lead))), n);
        store_n(sum + i, V(0.f), n);
        store_n(squares + i, V(0.f), n);
      });
  int64_t r = rows_abreast<T>(C) == 8 ? add_rows<T, 8>(x, rows, C, shift, sum, squares) : 0;
  add_rows<T, 1>(x + r * C, rows - r, C, shift, sum, squares);
  double per_row = 1.0 / double(rows);
  for (int64_t g = 0; g < G; ++g) {
    double mean = 0, m2 = 0;
    for (int64_t c = g * D; c < (g + 1) * D; ++c) mean += double(shift[c]) + double(sum[c]) * per_row;
    mean /= double(D);
    for (int64_t c = g * D; c < (g + 1) * D; ++c) {
      double s = sum[c], delta = double(shift[c]) + s * per_row - mean;
      m2 += double(squares[c]) - s * s * per_row + double(rows) * delta * delta;
    }
    out[2 * g] = mean;
    out[2 * g + 1] = m2 > 0 ? m2 : 0;
  }
}

// The activation of z, given z times kActivationScale<T, kSilu>.
template <class T, bool kSilu> inline constexpr double kActivationScale = kSilu ? kSiluScale<T> : 1;
template <class T, bool kSilu, class V> SF_INLINE static V activated(V z) {
  if constexpr (kSilu) return silu_scaled<T>(z);
  else return z;
}
// The gradient of activated(z) times dy.
template <bool kSilu, class V> SF_INLINE static V deactivated(V z, V dy) {
  if constexpr (kSilu) {
    V s = reciprocal(V(1.f) + exp_fast(min(V(87.f), -z)));
    return dy * fma(z * s, V(1.f) - s, s);
  } else {
    return dy;
  }
}

#if defined(__AVX512BF16__)
// 32 bfloat16 numbers as two vectors, those at even and those at odd places: shorter than widening them in order.
struct EvenOdd {
  vf even, odd;
};
SF_INLINE static EvenOdd load_pairs(const BFloat16* x) {
  const __m512i v = _mm512_loadu_si512(x);
  return {(vf_raw)_mm512_slli_epi32(v, 16), (vf_raw)_mm512_and_si512(v, _mm512_set1_epi32(int(0xffff0000)))};
}
SF_INLINE static void store_pairs(BFloat16* y, vf even, vf odd) {
  const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21,
                                         5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  _mm512_storeu_si512(y, _mm512_permutexvar_epi16(order, (__m512i)_mm512_cvtne2ps_pbh((__m512)odd.v, (__m512)even.v)));
}
#endif

// y = act(z), with z = x gain + offset; gain and offset come times kActivationScale. `ahead` is what the thread will
// read from memory next, as many elements: it comes while this is computed from the cache.
template <class T, bool kSilu>
static void plane_apply(const T* x, T* y, int64_t n, Acc<T> gain, Acc<T> offset, const T* ahead, bool stream) {
  using V = Vec<T>;
  V a(gain), b(offset);
  if constexpr (sizeof(T) == 4) {
    if (stream) {
      each_vector<T>(
          n, [&](int64_t i) __attribute__((always_inline)) { __builtin_prefetch(ahead + i, 0, 2); },
          [&](int64_t i, int)
              __attribute__((always_inline)) { store_stream(y + i, activated<T, kSilu>(fma(load(x + i), a, b))); });
      return;
    }
  }
  int64_t first = 0;
#if defined(__AVX512BF16__)
  if constexpr (std::is_same_v<T, BFloat16>)
    for (; first + 32 <= n; first += 32) {
      __builtin_prefetch(ahead + first, 0, 2);
      __builtin_prefetch(y + first + kWriteAhead<T>, 1);
      EvenOdd v = load_pairs(x + first);
      store_pairs(y + first, activated<T, kSilu>(fma(v.even, a, b)), activated<T, kSilu>(fma(v.odd, a, b)));
    }
#endif
  each_vector<T>(
      n - first,
      [&](int64_t i) __attribute__((always_inline)) {
        __builtin_prefetch(ahead + i, 0, 2);
        __builtin_prefetch(y + i + kWriteAhead<T>, 1);
      },
      [&](int64_t i, int k) __attribute__((always_inline)) {
        store_n(y + first + i, activated<T, kSilu>(fma(load_n(x + first + i, k), a, b)), k);
      });
}

// Floats of the coefficients of C channels: gain[C], offset[C], and for pairs of bfloat16, after them, per 32 channels
// the gains of the even ones, of the odd ones, and the offsets likewise.
inline int64_t row_coefficients(int64_t C) { return 4 * C; }
template <class T> static void pair_row_coefficients(Acc<T>* k, int64_t C) {
  if constexpr (std::is_same_v<T, BFloat16>)
    for (int64_t c = 0; c + 32 <= C; c += 32)
      for (int64_t j = 0; j < 16; ++j)
        for (int64_t odd = 0; odd < 2; ++odd)
          for (int64_t what = 0; what < 2; ++what)
            k[2 * C + 2 * c + 32 * what + 16 * odd + j] = k[what * C + c + 2 * j + odd];
}

// The same for rows, k being row_coefficients. `next` is what the thread will read from memory afterwards, as many
// rows, fetched meanwhile; null for none.
template <class T, bool kSilu>
static void rows_apply(const T* x, T* y, int64_t rows, int64_t C, const Acc<T>* k, bool stream, const T* next) {
  const Acc<T>*gain = k, *offset = k + C;
  if (!next) next = x;
  for (int64_t r = 0; r < rows; ++r) {
    const T *from = x + r * C, *ahead = next + r * C;
    T* to = y + r * C;
    int64_t first = 0;
    if constexpr (sizeof(T) == 4) {
      if (stream) {
        each_vector<T>(
            C, [&](int64_t i) __attribute__((always_inline)) { __builtin_prefetch(from + i + kWriteAhead<T>); },
            [&](int64_t i, int) __attribute__((always_inline)) {
              store_stream(to + i, activated<T, kSilu>(fma(load(from + i), load(gain + i), load(offset + i))));
            });
        continue;
      }
    }
    auto fetch = [&](int64_t i) __attribute__((always_inline)) {
      __builtin_prefetch(from + i + kWriteAhead<T>);
      __builtin_prefetch(to + i + kWriteAhead<T>, 1);
      __builtin_prefetch(ahead + i, 0, 2);
    };
#if defined(__AVX512BF16__)
    if constexpr (std::is_same_v<T, BFloat16>)
      for (; first + 32 <= C; first += 32) {
        fetch(first);
        const float* q = k + 2 * C + 2 * first;
        EvenOdd v = load_pairs(from + first);
        store_pairs(to + first, activated<T, kSilu>(fma(v.even, load(q), load(q + 32))),
                    activated<T, kSilu>(fma(v.odd, load(q + 16), load(q + 48))));
      }
#endif
    each_vector<T>(
        C - first, [&](int64_t i) __attribute__((always_inline)) { fetch(first + i); },
        [&](int64_t i, int n) __attribute__((always_inline)) {
          int64_t at = first + i;
          store_n(to + at, activated<T, kSilu>(fma(load_n(from + at, n), load_n(gain + at, n), load_n(offset + at, n))),
                  n);
        });
  }
}

// Gradients, with z = x gain + offset, dz = dy act'(z) and hat = x rstd + center (center = -mean rstd):
// the sums over a channel are sum(dz hat), which is dweight, and sum(dz), which is dbias; then
// dx = p dz + q x + t, with coefficients that the op computes from those sums.
template <class A> struct Coefficients { A gain, offset, rstd, center; };
template <class T, bool kSilu>
static void plane_sums(const T* x, const T* dy, int64_t n, const Coefficients<Acc<T>>& k, Acc<T>* out) {
  using V = Vec<T>;
  constexpr int L = kVec<T>;
  V gain(k.gain), offset(k.offset), rstd(k.rstd), center(k.center), a0(0.f), a1(0.f), b0(0.f), b1(0.f);
  auto step = [&](int64_t i, int lanes, V& a, V& b) __attribute__((always_inline)) {
    V v = load_n(x + i, lanes), dz = deactivated<kSilu>(fma(v, gain, offset), load_n(dy + i, lanes));  // dy is 0 past n
    a = fma(dz, fma(v, rstd, center), a);
    b += dz;
  };
  int64_t i = 0;
  for (; i + 2 * L <= n; i += 2 * L) {
    step(i, L, a0, b0);
    step(i + L, L, a1, b1);
  }
  for (; i + L <= n; i += L) step(i, L, a0, b0);
  if (L > 1 && i < n) step(i, int(n - i), a0, b0);
  out[0] = reduce_add(a0 + a1);
  out[1] = reduce_add(b0 + b1);
}
template <class T, bool kSilu>
static void plane_dx(const T* x, const T* dy, T* dx, int64_t n, Acc<T> gain, Acc<T> offset, Acc<T> p, Acc<T> q,
                     Acc<T> t) {
  using V = Vec<T>;
  V a(gain), b(offset), vp(p), vq(q), vt(t);
  each_vector<T>(
      n, [&](int64_t i, int k) __attribute__((always_inline)) {
        V v = load_n(x + i, k), dz = deactivated<kSilu>(fma(v, a, b), load_n(dy + i, k));
        store_n(dx + i, fma(vp, dz, fma(vq, v, vt)), k);
      });
}
// The same for rows: k is gain[C], offset[C], rstd[C], center[C]; out[2 C] is set.
template <class T, bool kSilu>
static void rows_sums(const T* x, const T* dy, int64_t rows, int64_t C, const Acc<T>* k, Acc<T>* out) {
  using V = Vec<T>;
  for (int64_t c = 0; c < 2 * C; ++c) out[c] = 0;
  auto dz_of = [&](V v, V g, int64_t i, int n) __attribute__((always_inline)) {
    if constexpr (kSilu) return deactivated<true>(fma(v, load_n(k + i, n), load_n(k + C + i, n)), g);
    else return g;
  };
  int64_t r = 0;
  for (; r + 2 <= rows; r += 2) {
    const T *px = x + r * C, *pg = dy + r * C;
    each_vector<T>(
        C, [&](int64_t i, int n) __attribute__((always_inline)) {
          V rstd = load_n(k + 2 * C + i, n), center = load_n(k + 3 * C + i, n), v0 = load_n(px + i, n),
            v1 = load_n(px + C + i, n);
          V d0 = dz_of(v0, load_n(pg + i, n), i, n), d1 = dz_of(v1, load_n(pg + C + i, n), i, n);
          store_n(out + i, fma(d1, fma(v1, rstd, center), fma(d0, fma(v0, rstd, center), load_n(out + i, n))), n);
          store_n(out + C + i, load_n(out + C + i, n) + (d0 + d1), n);
        });
  }
  for (; r < rows; ++r)
    each_vector<T>(
        C, [&](int64_t i, int n) __attribute__((always_inline)) {
          V v = load_n(x + r * C + i, n), d = dz_of(v, load_n(dy + r * C + i, n), i, n);
          store_n(out + i, fma(d, fma(v, load_n(k + 2 * C + i, n), load_n(k + 3 * C + i, n)), load_n(out + i, n)), n);
          store_n(out + C + i, load_n(out + C + i, n) + d, n);
        });
}
// pqt is p[C], q[C], t[C].
template <class T, bool kSilu>
static void rows_dx(const T* x, const T* dy, T* dx, int64_t rows, int64_t C, const Acc<T>* k, const Acc<T>* pqt) {
  using V = Vec<T>;
  for (int64_t r = 0; r < rows; ++r) {
    const T *px = x + r * C, *pg = dy + r * C;
    T* out = dx + r * C;
    each_vector<T>(
        C, [&](int64_t i, int n) __attribute__((always_inline)) {
          V v = load_n(px + i, n), dz = load_n(pg + i, n);
          if constexpr (kSilu) dz = deactivated<true>(fma(v, load_n(k + i, n), load_n(k + C + i, n)), dz);
          store_n(out + i, fma(load_n(pqt + i, n), dz, fma(load_n(pqt + C + i, n), v, load_n(pqt + 2 * C + i, n))), n);
        });
  }
}

// Sizes of x[N, C, ...] and how it lies in memory.
struct ChannelShape {
  int64_t N, C, S;  // S: spatial positions
  bool rows;        // channels-last (or S = 1, where both layouts agree)
};
static ChannelShape channel_shape(const TensorView& x) {
  ChannelShape s{x.sizes[0], x.sizes[1], 1, false};
  for (int i = 2; i < x.ndim; ++i) s.S *= x.sizes[i];
  s.rows = !x.is_contiguous() || s.S == 1;
  return s;
}
SF_INLINE bool same_layout(const TensorView& v, const TensorView& x) {
  if (!v || v.dtype != x.dtype || v.ndim != x.ndim) return false;
  return x.is_contiguous() ? v.is_contiguous() : v.is_channels_last();
}
SF_INLINE bool channel_input(const TensorView& x) {
  return x.ndim >= 2 && computes(x.dtype) && (x.is_contiguous() || x.is_channels_last());
}
SF_INLINE bool any_floating_channels(const TensorView& v) { return !v || computes(v.dtype); }
// Output past the caches: whole vectors only.
template <class T> SF_INLINE bool streams(const ChannelShape& s, const void* x, const void* y) {
  return sizeof(T) == 4 && (s.rows ? s.C : s.S) % kVec<T> == 0 &&
         SF_ISA::streams(x, y, s.N * s.C * s.S * int64_t(sizeof(T)));
}

}  // namespace SF_ISA
}  // namespace sf
