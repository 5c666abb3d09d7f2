// Rows of predicate.def and bitwise.def, and bitwise_not.
#include "scaffolding/ops/pointwise/row_math.h"

namespace sf {
namespace SF_ISA {
namespace {

template <class I> SF_INLINE I shifted_left(I a, I b) {
  constexpr int kBits = sizeof(I) * 8;
  return b < I(0) || b >= I(kBits) ? I(0) : I(uint64_t(a) << b);
}
template <class I> SF_INLINE I shifted_right(I a, I b) {
  constexpr int kBits = sizeof(I) * 8;
  if (b < I(0) || b >= I(kBits)) return a < I(0) ? I(-1) : I(0);
  return I(a >> b);
}

#define SF_PREDICATE(name, expression, like, doc)                           \
  struct name##_fn {                                                        \
    template <class T> SF_INLINE static bool of(T x) { return expression; } \
  };
#include "scaffolding/ops/pointwise/predicate.def"
#undef SF_PREDICATE
#define SF_BITWISE(name, expression, doc)                                     \
  struct name##_fn {                                                          \
    template <class I> SF_INLINE static I of(I a, I b) { return expression; } \
  };
#include "scaffolding/ops/pointwise/bitwise.def"
#undef SF_BITWISE

template <class F> void predicate(const PointwiseRow& r) {
  auto* y = static_cast<bool*>(r.out);
  auto rows = [&](auto t) {
    using T = decltype(t);
    auto* x = static_cast<const T*>(r.in[0]);
    for (int64_t i = 0; i < r.n; ++i) {
      if constexpr (__is_class(T)) y[i] = F::of(to_float(x[i]));
      else y[i] = F::of(x[i]);
    }
  };
  if (as_vector(r.dtype, rows)) return;
  if (r.dtype == kFloat64) return rows(double{});
  as_integer(r.dtype, rows);
}

template <class F> void bitwise(const PointwiseRow& r) {
  // bytes of 0 and 1: as bools each would be tested
  as_integer(r.dtype == kBool ? kUInt8 : r.dtype, [&](auto t) {
    using I = decltype(t);
    auto *a = static_cast<const I*>(r.in[0]), *b = static_cast<const I*>(r.in[1]);
    auto* y = static_cast<I*>(r.out);
    const int64_t n = r.n;  // bytes that are written may be anything's, r's too
    for (int64_t i = 0; i < n; ++i) y[i] = F::of(a[i], b[i]);
  });
}

void flip_bits(const PointwiseRow& r) {
  as_integer(r.dtype, [&](auto t) {
    using I = decltype(t);
    auto* x = static_cast<const I*>(r.in[0]);
    auto* y = static_cast<I*>(r.out);
    const int64_t n = r.n;
    for (int64_t i = 0; i < n; ++i) y[i] = I(~x[i]);
  });
}

bool is_whole(const PointwiseRow& r) { return !is_floating(r.dtype); }

#define SF_PREDICATE(name, ...) \
  SF_KERNEL(name##_forward, DeviceType::CPU, "native", SF_ISA_PRIORITY, predicate<name##_fn>, nullptr)
#define SF_BITWISE(name, ...) \
  SF_KERNEL(name##_forward, DeviceType::CPU, "native", SF_ISA_PRIORITY, bitwise<name##_fn>, is_whole)
#include "scaffolding/ops/pointwise/bitwise.def"
#include "scaffolding/ops/pointwise/predicate.def"
SF_KERNEL(bitwise_not_forward, DeviceType::CPU, "native", SF_ISA_PRIORITY, flip_bits, is_whole)

}  // namespace
}  // namespace SF_ISA
}  // namespace sf
