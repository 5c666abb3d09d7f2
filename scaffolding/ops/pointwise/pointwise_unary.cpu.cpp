// Rows of every op of unary.def: one pass, one load and one store per element, arithmetic in float32 for 16-bit floats.
#include "scaffolding/ops/pointwise/row_math.h"

namespace sf {
namespace SF_ISA {
namespace {

// Of 16-bit floats these are functions of the bits: nothing is widened, and what is a NaN keeps all of its own.
template <class F> SF_INLINE bool of_bits(const PointwiseRow& r) {
  constexpr bool kNeg = std::is_same_v<F, neg_fn>, kAbs = std::is_same_v<F, abs_fn>, kRelu = std::is_same_v<F, relu_fn>;
  if constexpr (kNeg || kAbs || kRelu) {
    if (r.dtype != kBFloat16 && r.dtype != kFloat16) return false;
    const auto* x = static_cast<const int16_t*>(r.in[0]);
    auto* y = static_cast<int16_t*>(r.out);
    const int16_t infinity = r.dtype == kBFloat16 ? 0x7f80 : 0x7c00;
    for (int64_t i = 0; i < r.n; ++i) {
      const auto size = int16_t(x[i] & 0x7fff);
      if constexpr (kNeg) y[i] = int16_t(x[i] ^ -0x8000);
      else if constexpr (kAbs) y[i] = size;
      else y[i] = x[i] < 0 && size <= infinity ? int16_t(0) : x[i];
    }
    return true;
  }
  return false;
}

template <class F, int kind> void forward(const PointwiseRow& r) {
  if (of_bits<F>(r)) return;
  int64_t n = r.n;
  bool done = as_vector(r.dtype, [&](auto t) {
    using T = decltype(t);
    auto* x = static_cast<const T*>(r.in[0]);
    auto* y = static_cast<T*>(r.out);
    vf p0(r.p0), p1(r.p1);
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) store(y + i, value_for<F, T>(load(x + i), p0, p1));
    if (i < n) store_n(y + i, value_for<F, T>(load_n(x + i, int(n - i)), p0, p1), int(n - i));
  });
  if (done) return;
  if (r.dtype == kFloat64) {
    auto* x = static_cast<const double*>(r.in[0]);
    auto* y = static_cast<double*>(r.out);
    for (int64_t i = 0; i < n; ++i) y[i] = F::template y<double>(x[i], r.p0, r.p1);
    return;
  }
  if constexpr (kind == NUMERIC)
    as_integer(r.dtype, [&](auto t) {
      using I = decltype(t);
      auto* x = static_cast<const I*>(r.in[0]);
      auto* y = static_cast<I*>(r.out);
      Int<I> p0(r.p0), p1(r.p1);
      for (int64_t i = 0; i < n; ++i) y[i] = F::template y<Int<I>>(Int<I>(x[i]), p0, p1).v;
    });
}

// in: dy, x, y; the expression reads only what `saves` names.
template <class F, int saves> void backward(const PointwiseRow& r) {
  int64_t n = r.n;
  bool done = as_vector(r.dtype, [&](auto t) {
    using T = decltype(t);
    auto *dy = static_cast<const T*>(r.in[0]), *x = static_cast<const T*>(r.in[1]), *y = static_cast<const T*>(r.in[2]);
    auto* dx = static_cast<T*>(r.out);
    vf p0(r.p0), p1(r.p1);
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
      vf xv = saves & X ? load(x + i) : vf(0.f), yv = saves & Y ? load(y + i) : vf(0.f);
      store(dx + i, F::template dx<vf>(load(dy + i), xv, yv, p0, p1));
    }
    if (i < n) {
      int m = int(n - i);
      vf xv = saves & X ? load_n(x + i, m) : vf(0.f), yv = saves & Y ? load_n(y + i, m) : vf(0.f);
      store_n(dx + i, F::template dx<vf>(load_n(dy + i, m), xv, yv, p0, p1), m);
    }
  });
  if (done) return;
  auto *dy = static_cast<const double*>(r.in[0]), *x = static_cast<const double*>(r.in[1]),
       *y = static_cast<const double*>(r.in[2]);
  auto* dx = static_cast<double*>(r.out);
  for (int64_t i = 0; i < n; ++i)
    dx[i] = F::template dx<double>(dy[i], saves & X ? x[i] : 0, saves & Y ? y[i] : 0, r.p0, r.p1);
}

template <class F> bool is_float(const PointwiseRow& r) { return is_floating(r.dtype); }

#define SF_UNARY(name, kind, saves, ...)                                                                    \
  SF_KERNEL(name##_forward, DeviceType::CPU, "native", SF_ISA_PRIORITY, (forward<name##_fn, kind>),         \
            (kind == NUMERIC ? static_cast<bool (*)(const PointwiseRow&)>(nullptr) : &is_float<name##_fn>)) \
  SF_KERNEL(name##_backward, DeviceType::CPU, "native", SF_ISA_PRIORITY, (backward<name##_fn, saves>),      \
            is_float<name##_fn>)
#define SF_UNARY_P SF_UNARY
#include "scaffolding/ops/pointwise/unary.def"

}  // namespace
}  // namespace SF_ISA
}  // namespace sf
