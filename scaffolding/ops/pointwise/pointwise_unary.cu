// Every op of unary.def on CUDA: one pass, arithmetic in float32 for 16-bit floats.
#include "scaffolding/ops/pointwise/scalar_math.cuh"

namespace sf::cuda {
namespace {

template <class F> constexpr const char* kName = nullptr;  // of the op, in errors
#define SF_UNARY(name, ...) template <> constexpr const char* kName<name##_fn> = #name;
#define SF_UNARY_P SF_UNARY
#include "scaffolding/ops/pointwise/unary.def"
#undef SF_UNARY
#undef SF_UNARY_P

template <class F, class T> struct Forward {
  compute_t<T> p0, p1;
  __device__ T operator()(T x) const { return from_compute<T>(value_of<F>(to_compute(x), p0, p1)); }
};

template <class F, int kind> void forward(const PointwiseViews& v) {
  auto run = [&](auto t) {
    using T = decltype(t);
    elementwise<T, T>(kName<F>, Forward<F, T>{compute_t<T>(v.p0), compute_t<T>(v.p1)}, v.out, v.in[0]);
  };
  if (as_float(v.dtype, run)) return;
  if constexpr (kind == NUMERIC) as_integer(v.dtype, run);
}

#define SF_UNARY(name, kind, saves, ...)                                                     \
  SF_KERNEL(name##_forward.views, DeviceType::CUDA, "native", 0, (forward<name##_fn, kind>), \
            (kind == NUMERIC ? static_cast<bool (*)(const PointwiseViews&)>(nullptr) : &computes_in_floats))
#define SF_UNARY_P SF_UNARY
#include "scaffolding/ops/pointwise/unary.def"

}  // namespace
}  // namespace sf::cuda
