// Rows of every op of binary.def and compare.def, and lerp.
#include "scaffolding/ops/pointwise/row_math.h"

namespace sf {
namespace SF_ISA {
namespace {

// One operand is a number in 32 bits.
template <class F, class T> void with_number(const T* a, const T* b, T* y, int64_t n, vf number, vf p0) {
  const T* x = a ? a : b;
  auto apply = [&](vf v) { return a ? F::template y<vf>(v, number, p0) : F::template y<vf>(number, v, p0); };
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(y + i, apply(load(x + i)));
  if (i < n) store_n(y + i, apply(load_n(x + i, int(n - i), 1)), int(n - i));
}

// Quotients and remainders of 64-bit integers, which no vector instruction divides: by doubles, which hold them exactly
// below 2^51. A quotient that is no whole number is 1 / |a| of itself away from one at least, further than a double's
// rounding moves it.
template <class F>
inline constexpr bool kDivides = std::is_same_v<F, floor_divide_fn> || std::is_same_v<F, trunc_divide_fn> ||
                                 std::is_same_v<F, remainder_fn> || std::is_same_v<F, fmod_fn>;
inline constexpr int kLongs = kLanes / 2;
// False where a number is too large or b has a 0.
template <class F> SF_INLINE bool divide_vector(const int64_t* a, const int64_t* b, int64_t* y) {
  typedef int64_t Longs __attribute__((vector_size(kLongs * 8)));
  typedef double Doubles __attribute__((vector_size(kLongs * 8)));
  constexpr double kMagic = 0x1.8p52;  // added to a whole number, it leaves that in the low bits
  constexpr int64_t kBits = 0x4338000000000000, kHalf = int64_t(1) << 51;
  Longs x, z;
  std::memcpy(&x, a, sizeof x);
  std::memcpy(&z, b, sizeof z);
  const Longs wrong = (((x + kHalf) | (z + kHalf)) & ~(2 * kHalf - 1)) | (z == 0);
  int64_t any = 0;
  for (int i = 0; i < kLongs; ++i) any |= wrong[i];
  if (any) return false;
  const Doubles p = (Doubles)(x + kBits) - kMagic, d = (Doubles)(z + kBits) - kMagic;
  const Doubles t = p / d, near = (t + kMagic) - kMagic;
  constexpr bool kFloor = std::is_same_v<F, floor_divide_fn> || std::is_same_v<F, remainder_fn>;
  Doubles q = near - (near > t ? Doubles{} + 1.0 : Doubles{});
  if constexpr (!kFloor) q = (t < 0.0) & (q != t) ? q + 1.0 : q;
  if constexpr (std::is_same_v<F, remainder_fn> || std::is_same_v<F, fmod_fn>) q = p - q * d;
  const Longs whole = (Longs)(q + kMagic) - kBits;
  std::memcpy(y, &whole, sizeof whole);
  return true;
}

template <class F, int kind> void forward(const PointwiseRow& r) {
  int64_t n = r.n;
  bool done = as_vector(r.dtype, [&](auto t) {
    using T = decltype(t);
    auto *a = static_cast<const T*>(r.in[0]), *b = static_cast<const T*>(r.in[1]);
    auto* y = static_cast<T*>(r.out);
    vf p0(r.p0);
    if (!a || !b) return with_number<F>(a, b, y, n, vf(float(r.p1)), p0);
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) store(y + i, F::template y<vf>(load(a + i), load(b + i), p0));
    if (i < n)
      store_n(y + i, F::template y<vf>(load_n(a + i, int(n - i)), load_n(b + i, int(n - i), 1), p0), int(n - i));
  });
  if (done) return;
  if (r.dtype == kFloat64) {
    auto *a = static_cast<const double*>(r.in[0]), *b = static_cast<const double*>(r.in[1]);
    auto* y = static_cast<double*>(r.out);
    for (int64_t i = 0; i < n; ++i) y[i] = F::template y<double>(a[i], b[i], r.p0);
    return;
  }
  if constexpr (kind == NUMERIC)
    as_integer(r.dtype, [&](auto t) {
      using I = decltype(t);
      auto *a = static_cast<const I*>(r.in[0]), *b = static_cast<const I*>(r.in[1]);
      auto* y = static_cast<I*>(r.out);
      Int<I> p0(r.p0);
      auto each = [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) y[i] = F::template y<Int<I>>(Int<I>(a[i]), Int<I>(b[i]), p0).v;
      };
      int64_t i = 0;
      if constexpr (kDivides<F> && sizeof(I) == 8)
        for (; i + kLongs <= n; i += kLongs)
          if (!divide_vector<F>(a + i, b + i, y + i)) each(i, i + kLongs);
      each(i, n);
    });
}

template <class F> bool is_float(const PointwiseRow& r) { return is_floating(r.dtype); }

#define SF_BINARY(name, kind, ...)                                                                  \
  SF_KERNEL(name##_forward, DeviceType::CPU, "native", SF_ISA_PRIORITY, (forward<name##_fn, kind>), \
            (kind == NUMERIC ? static_cast<bool (*)(const PointwiseRow&)>(nullptr) : &is_float<name##_fn>))
#define SF_BINARY_P SF_BINARY
#include "scaffolding/ops/pointwise/binary.def"

#define SF_COMPARE(name, expression, doc)                                       \
  struct name##_fn {                                                            \
    template <class T> SF_INLINE static bool y(T a, T b) { return expression; } \
  };
#include "scaffolding/ops/pointwise/compare.def"
#undef SF_COMPARE

template <class F> void compare(const PointwiseRow& r) {
  auto* y = static_cast<bool*>(r.out);
  auto rows = [&](auto t) {
    using T = decltype(t);
    auto *a = static_cast<const T*>(r.in[0]), *b = static_cast<const T*>(r.in[1]);
    for (int64_t i = 0; i < r.n; ++i) {
      if constexpr (__is_class(T)) y[i] = F::y(to_float(a[i]), to_float(b[i]));
      else y[i] = F::y(a[i], b[i]);
    }
  };
  if (as_vector(r.dtype, rows)) return;
  if (r.dtype == kFloat64) return rows(double{});
  as_integer(r.dtype, rows);
}
#define SF_COMPARE(name, ...) \
  SF_KERNEL(name##_forward, DeviceType::CPU, "native", SF_ISA_PRIORITY, compare<name##_fn>, nullptr)
#include "scaffolding/ops/pointwise/compare.def"

void lerp(const PointwiseRow& r) {
  bool done = as_vector(r.dtype, [&](auto t) {
    using T = decltype(t);
    auto *a = static_cast<const T*>(r.in[0]), *b = static_cast<const T*>(r.in[1]), *w = static_cast<const T*>(r.in[2]);
    auto* y = static_cast<T*>(r.out);
    const vf number(float(r.p1));
    auto all = [&](auto has_weights) {
      constexpr bool kWeights = decltype(has_weights)::value;
      int64_t i = 0;
      for (; i + kLanes <= r.n; i += kLanes)
        store(y + i, lerp_of<vf>(load(a + i), load(b + i), kWeights ? load(w + i) : number));
      if (const int m = int(r.n - i))
        store_n(y + i, lerp_of<vf>(load_n(a + i, m), load_n(b + i, m), kWeights ? load_n(w + i, m) : number), m);
    };
    w ? all(std::true_type{}) : all(std::false_type{});
  });
  if (done) return;
  auto *a = static_cast<const double*>(r.in[0]), *b = static_cast<const double*>(r.in[1]),
       *w = static_cast<const double*>(r.in[2]);
  auto* y = static_cast<double*>(r.out);
  for (int64_t i = 0; i < r.n; ++i) y[i] = lerp_of(a[i], b[i], w[i]);
}
SF_KERNEL(lerp_forward, DeviceType::CPU, "native", SF_ISA_PRIORITY, lerp, is_float<void>)

}  // namespace
}  // namespace SF_ISA
}  // namespace sf
