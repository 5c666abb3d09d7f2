// RoPE on the CPU: rows of the last dimension in parallel, both halves of a pair in registers at once.
#include "scaffolding/ops/rope/kernel.h"

#include "scaffolding/backend/cpu/simd_rows.h"

namespace sf {
namespace SF_ISA {

SF_INLINE static vf minus_plus() {
  vf r;
  for (int i = 0; i < kLanes; ++i) r.v[i] = i & 1 ? 1.f : -1.f;
  return r;
}

// Pairs (0, 1), (2, 3), ...: the other of each pair comes by a shuffle.
template <class T, bool kPaired, bool kInverse>
static void rotate_interleaved(const T* x, const float* c, const float* s, T* y, int64_t R) {
  const vf sign = minus_plus();
  each_vector<T>(
      R, [&](int64_t i, int n) __attribute__((always_inline)) {
        vf v = load_n(x + i, n), cosine, sine;
        if constexpr (kPaired) {
          cosine = each_twice(load_n(c + i / 2, n / 2));
          sine = each_twice(load_n(s + i / 2, n / 2));
        } else {
          cosine = load_n(c + i, n);
          sine = load_n(s + i, n);
        }
        vf other = kInverse ? swap_pairs(v * sine * sign) : swap_pairs(v) * sine * sign;
        store_n(y + i, fma(v, cosine, other), n);
      });
}
template <class T, bool kPaired, bool kInverse>
static void rotate_interleaved(const double* x, const double* c, const double* s, double* y, int64_t R) {
  for (int64_t i = 0; i < R; i += 2) {
    int64_t k = kPaired ? i / 2 : i, l = kPaired ? k : k + 1;
    double a = x[i], b = x[i + 1];
    y[i] = kInverse ? a * c[k] + b * s[l] : a * c[k] - b * s[k];
    y[i + 1] = kInverse ? b * c[l] - a * s[k] : b * c[l] + a * s[l];
  }
}
// Pairs (i, i + R / 2).
template <class T, bool kPaired, bool kInverse>
static void rotate_halves(const T* x, const Acc<T>* c, const Acc<T>* s, T* y, int64_t R) {
  using V = Vec<T>;
  int64_t H = R / 2, second = kPaired ? 0 : H;
  each_vector<T>(
      H, [&](int64_t i, int n) __attribute__((always_inline)) {
        V a = load_n(x + i, n), b = load_n(x + H + i, n), c1 = load_n(c + i, n), s1 = load_n(s + i, n), c2 = c1,
          s2 = s1;
        if constexpr (!kPaired) {
          c2 = load_n(c + second + i, n);
          s2 = load_n(s + second + i, n);
        }
        store_n(y + i, kInverse ? fma(a, c1, b * s2) : fma(a, c1, -(b * s1)), n);
        store_n(y + H + i, kInverse ? fma(b, c2, -(a * s1)) : fma(b, c2, a * s2), n);
      });
}

template <class T, bool kPaired, bool kInverse> static void rotate_rows(const RopeApply& a) {
  int last = a.x.ndim - 1;
  int64_t D = a.x.sizes[last], R = a.cos.sizes[last] * (kPaired ? 2 : 1), rows = 1;
  for (int d = 0; d < last; ++d) rows *= a.x.sizes[d];
  parallel_for(rows, row_grain(D), [=, &a](int64_t begin, int64_t end) {
    int64_t index[12], left = begin, at_x = 0, at_y = 0, at_c = 0, at_s = 0;
    auto move = [&](int d, int64_t by) __attribute__((always_inline)) {
      at_x += by * a.x.strides[d];
      at_y += by * a.y.strides[d];
      at_c += by * a.cos.strides[d];
      at_s += by * a.sin.strides[d];
    };
    for (int d = last - 1; d >= 0; --d) {
      index[d] = left % a.x.sizes[d];
      left /= a.x.sizes[d];
      move(d, index[d]);
    }
    for (int64_t r = begin; r < end; ++r) {
      const T* x = a.x.as<const T>() + at_x;
      T* y = a.y.as<T>() + at_y;
      const Acc<T>*c = a.cos.as<const Acc<T>>() + at_c, *s = a.sin.as<const Acc<T>>() + at_s;
      if (a.interleaved) rotate_interleaved<T, kPaired, kInverse>(x, c, s, y, R);
      else rotate_halves<T, kPaired, kInverse>(x, c, s, y, R);
      if (x != y)
        for (int64_t i = R; i < D; ++i) y[i] = x[i];
      for (int d = last - 1; d >= 0; --d) {  // the next row, as an odometer
        move(d, 1);
        if (++index[d] < a.x.sizes[d]) break;
        move(d, -index[d]);
        index[d] = 0;
      }
    }
  });
}

static void apply(const RopeApply& a) {
  visit_floating(a.x.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if (a.paired_tables) a.inverse ? rotate_rows<T, true, true>(a) : rotate_rows<T, true, false>(a);
    else a.inverse ? rotate_rows<T, false, true>(a) : rotate_rows<T, false, false>(a);
  });
}
static bool supports(const RopeApply& a) {
  DType tables = a.x.dtype == kFloat64 ? kFloat64 : kFloat32;
  auto row = [](const TensorView& v) { return v.strides[v.ndim - 1] == 1 || v.sizes[v.ndim - 1] == 1; };
  return a.x.ndim > 0 && a.x.ndim <= 12 && computes(a.x.dtype) && a.y.dtype == a.x.dtype && a.cos.dtype == tables &&
         a.sin.dtype == tables && a.y.ndim == a.x.ndim && a.cos.ndim == a.x.ndim && a.sin.ndim == a.x.ndim &&
         row(a.x) && row(a.y) && row(a.cos) && row(a.sin);
}

SF_KERNEL(rope_apply, DeviceType::CPU, "native", SF_ISA_PRIORITY, apply, supports)

}  // namespace SF_ISA
}  // namespace sf
