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
// Elements between what is computed and what is fetched, 10 KiB: the hardware's prefetcher stops at every 4 KiB page.
template <class T> inline constexpr int64_t kReadAhead = 10240 / int64_t(sizeof(T));
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

// k rounded to T. Shifts are, so that x - shift has no more bits than T: otherwise thousands of 16-bit values, all with the
// same low bits after subtraction, would be rounded the same way by the adder (1e-5 in the mean of 16 Ki values).
template <class T> SF_INLINE static Vec<T> rounded(Vec<T> k) {
  T t[kVec<T>];
  store(t, k);
  return load(t);
}

// Mean and m2 of x[n], n <= kPiece: sums of x - shift, the shift being the mean of the first vector.
template <class T> static void plane_moments(const T* x, int64_t n, double* out) {
  using V = Vec<T>;
  using A = Acc<T>;
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

// Mean and m2 of each of the G groups of channels over x[rows][C]: out[G][2]. work[3 C].
template <class T> static void rows_moments(const T* x, int64_t rows, int64_t C, int64_t G, Acc<T>* work, double* out) {
  using V = Vec<T>;
  using A = Acc<T>;
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
  int64_t r = 0;
  for (; r + 8 <= rows; r += 8)  // eight rows at a time: the sums pass through L1 once for eight loads of x
    each_vector<T>(
        C,
        [&](int64_t i) __attribute__((always_inline)) {
          for (int j = 0; j < 8; ++j) __builtin_prefetch(x + (r + j) * C + i + kReadAhead<T>);
        },
        [&](int64_t i, int n) __attribute__((always_inline)) {
          V k = load_n(shift + i, n), s = load_n(sum + i, n), q = load_n(squares + i, n);
          for (int j = 0; j < 8; ++j) {
            V d = load_n(x + (r + j) * C + i, n) - k;
            s += d;
            q = fma(d, d, q);
          }
          store_n(sum + i, s, n);
          store_n(squares + i, q, n);
        });
  for (; r < rows; ++r)
    each_vector<T>(
        C, [&](int64_t i, int n) __attribute__((always_inline)) {
          V d = load_n(x + r * C + i, n) - load_n(shift + i, n);
          store_n(sum + i, load_n(sum + i, n) + d, n);
          store_n(squares + i, fma(d, d, load_n(squares + i, n)), n);
        });
  int64_t D = C / G;
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

template <class T, bool kSilu, class V> SF_INLINE static V activated(V z) {
  if constexpr (kSilu) return silu_for<T>(z);
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

// y = act(x gain + offset). `ahead` is what the thread will read from memory next, as many elements: it comes while this is
// computed from the cache.
template <class T, bool kSilu> static void plane_apply(const T* x, T* y, int64_t n, Acc<T> gain, Acc<T> offset, const T* ahead, bool stream) {
  using V = Vec<T>;
  V a(gain), b(offset);
  if constexpr (sizeof(T) == 4) {
    if (stream) {
      each_vector<T>(
          n, [&](int64_t i) __attribute__((always_inline)) { __builtin_prefetch(ahead + i, 0, 2); },
          [&](int64_t i, int) __attribute__((always_inline)) { store_stream(y + i, activated<T, kSilu>(fma(load(x + i), a, b))); });
      return;
    }
  }
  each_vector<T>(
      n,
      [&](int64_t i) __attribute__((always_inline)) {
        __builtin_prefetch(ahead + i, 0, 2);
        __builtin_prefetch(y + i + kWriteAhead<T>, 1);
      },
      [&](int64_t i, int k) __attribute__((always_inline)) { store_n(y + i, activated<T, kSilu>(fma(load_n(x + i, k), a, b)), k); });
}
// `next` is what the thread will read from memory afterwards, as many rows, fetched meanwhile; null for none.
template <class T, bool kSilu>
static void rows_apply(const T* x, T* y, int64_t rows, int64_t C, const Acc<T>* gain, const Acc<T>* offset, bool stream, const T* next) {
  using V = Vec<T>;
  int64_t r = 0;
  if (!next) next = x;
  if constexpr (sizeof(T) == 4) {
    for (; stream && r < rows; ++r) {
      const T* from = x + r * C;
      T* to = y + r * C;
      each_vector<T>(
          C, [&](int64_t i) __attribute__((always_inline)) { __builtin_prefetch(from + i + kWriteAhead<T>); },
          [&](int64_t i, int)
              __attribute__((always_inline)) { store_stream(to + i, activated<T, kSilu>(fma(load(from + i), load(gain + i), load(offset + i)))); });
    }
  }
  auto fetch = [&](int64_t at) __attribute__((always_inline)) {
    __builtin_prefetch(x + at + kWriteAhead<T>);
    __builtin_prefetch(y + at + kWriteAhead<T>, 1);
    __builtin_prefetch(next + at, 0, 2);
  };
  auto step = [&](int64_t at, int n, V a, V b) __attribute__((always_inline)) { store_n(y + at, activated<T, kSilu>(fma(load_n(x + at, n), a, b)), n); };
  for (; r + 2 <= rows; r += 2)
    each_vector<T>(
        C,
        [&](int64_t i) __attribute__((always_inline)) {
          fetch(r * C + i);
          fetch((r + 1) * C + i);
        },
        [&](int64_t i, int n) __attribute__((always_inline)) {
          V a = load_n(gain + i, n), b = load_n(offset + i, n);
          step(r * C + i, n, a, b);
          step((r + 1) * C + i, n, a, b);
        });
  for (; r < rows; ++r)
    each_vector<T>(
        C, [&](int64_t i, int n) __attribute__((always_inline)) { step(r * C + i, n, load_n(gain + i, n), load_n(offset + i, n)); });
}

// Gradients, with z = x gain + offset, dz = dy act'(z) and hat = x rstd + center (center = -mean rstd):
// the sums over a channel are sum(dz hat), which is dweight, and sum(dz), which is dbias; then
// dx = p dz + q x + t, with coefficients that the op computes from those sums.
template <class A> struct Coefficients { A gain, offset, rstd, center; };
template <class T, bool kSilu> static void plane_sums(const T* x, const T* dy, int64_t n, const Coefficients<Acc<T>>& k, Acc<T>* out) {
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
template <class T, bool kSilu> static void plane_dx(const T* x, const T* dy, T* dx, int64_t n, Acc<T> gain, Acc<T> offset, Acc<T> p, Acc<T> q, Acc<T> t) {
  using V = Vec<T>;
  V a(gain), b(offset), vp(p), vq(q), vt(t);
  each_vector<T>(
      n, [&](int64_t i, int k) __attribute__((always_inline)) {
        V v = load_n(x + i, k), dz = deactivated<kSilu>(fma(v, a, b), load_n(dy + i, k));
        store_n(dx + i, fma(vp, dz, fma(vq, v, vt)), k);
      });
}
// The same for rows: k is gain[C], offset[C], rstd[C], center[C]; out[2 C] is set.
template <class T, bool kSilu> static void rows_sums(const T* x, const T* dy, int64_t rows, int64_t C, const Acc<T>* k, Acc<T>* out) {
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
          V rstd = load_n(k + 2 * C + i, n), center = load_n(k + 3 * C + i, n), v0 = load_n(px + i, n), v1 = load_n(px + C + i, n);
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
template <class T, bool kSilu> static void rows_dx(const T* x, const T* dy, T* dx, int64_t rows, int64_t C, const Acc<T>* k, const Acc<T>* pqt) {
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
SF_INLINE bool channel_input(const TensorView& x) { return x.ndim >= 2 && computes(x.dtype) && (x.is_contiguous() || x.is_channels_last()); }
SF_INLINE bool any_floating_channels(const TensorView& v) { return !v || computes(v.dtype); }
// Output past the caches: whole vectors only.
template <class T> SF_INLINE bool streams(const ChannelShape& s, const void* x, const void* y) {
  return sizeof(T) == 4 && (s.rows ? s.C : s.S) % kVec<T> == 0 && SF_ISA::streams(x, y, s.N * s.C * s.S * int64_t(sizeof(T)));
}

}  // namespace SF_ISA
}  // namespace sf
