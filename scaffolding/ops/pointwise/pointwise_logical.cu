// compare.def, predicate.def and bitwise.def on CUDA, and bitwise_not.
#include "scaffolding/ops/pointwise/scalar_math.cuh"

namespace sf::cuda {
namespace {

#define SF_COMPARE(name, expression, doc)                                         \
  struct name##_fn {                                                              \
    static constexpr const char* kName = #name;                                   \
    template <class T> __device__ static bool of(T a, T b) { return expression; } \
  };
#include "scaffolding/ops/pointwise/compare.def"
#undef SF_COMPARE
#define SF_PREDICATE(name, expression, like, doc)                            \
  struct name##_fn {                                                         \
    static constexpr const char* kName = #name;                              \
    template <class T> __device__ static bool of(T x) { return expression; } \
  };
#include "scaffolding/ops/pointwise/predicate.def"
#undef SF_PREDICATE

template <class I> __device__ I shifted_left(I a, I b) {
  constexpr int kBits = sizeof(I) * 8;
  return b < I(0) || b >= I(kBits) ? I(0) : I(uint64_t(a) << b);
}
template <class I> __device__ I shifted_right(I a, I b) {
  constexpr int kBits = sizeof(I) * 8;
  if (b < I(0) || b >= I(kBits)) return a < I(0) ? I(-1) : I(0);
  return I(a >> b);
}
#define SF_BITWISE(name, expression, doc)                                             \
  struct name##_fn {                                                                  \
    static constexpr const char* kName = #name;                                       \
    template <class I> __device__ I operator()(I a, I b) const { return expression; } \
  };
#include "scaffolding/ops/pointwise/bitwise.def"
#undef SF_BITWISE
struct bitwise_not_fn {
  template <class I> __device__ I operator()(I x) const { return I(~x); }
};

template <class F> struct Test {
  template <class... T> __device__ bool operator()(T... x) const { return F::of(widen(x)...); }
};

template <class F> void compare(const PointwiseViews& v) {
  auto run = [&](auto t) {
    using T = decltype(t);
    elementwise<bool, T, T>(F::kName, Test<F>{}, v.out, v.in[0], v.in[1]);
  };
  if (!as_float(v.dtype, run)) as_integer(v.dtype, run);
}
template <class F> void predicate(const PointwiseViews& v) {
  auto run = [&](auto t) { elementwise<bool, decltype(t)>(F::kName, Test<F>{}, v.out, v.in[0]); };
  if (!as_float(v.dtype, run)) as_integer(v.dtype, run);
}
template <class F> void bitwise(const PointwiseViews& v) {
  as_integer(v.dtype, [&](auto t) {
    using I = decltype(t);
    elementwise<I, I, I>(F::kName, F{}, v.out, v.in[0], v.in[1]);
  });
}
void flip_bits(const PointwiseViews& v) {
  as_integer(v.dtype,
             [&](auto t) { elementwise<decltype(t), decltype(t)>("bitwise_not", bitwise_not_fn{}, v.out, v.in[0]); });
}

bool is_whole(const PointwiseViews& v) { return !is_floating(v.dtype); }

#define SF_COMPARE(name, ...) \
  SF_KERNEL(name##_forward.views, DeviceType::CUDA, "native", 0, compare<name##_fn>, nullptr)
#define SF_PREDICATE(name, ...) \
  SF_KERNEL(name##_forward.views, DeviceType::CUDA, "native", 0, predicate<name##_fn>, nullptr)
#define SF_BITWISE(name, ...) \
  SF_KERNEL(name##_forward.views, DeviceType::CUDA, "native", 0, bitwise<name##_fn>, is_whole)
#include "scaffolding/ops/pointwise/bitwise.def"
#include "scaffolding/ops/pointwise/compare.def"
#include "scaffolding/ops/pointwise/predicate.def"
SF_KERNEL(bitwise_not_forward.views, DeviceType::CUDA, "native", 0, flip_bits, is_whole)

}  // namespace
}  // namespace sf::cuda
