// Every op of binary.def on CUDA, and lerp.
#include "scaffolding/ops/pointwise/scalar_math.cuh"

namespace sf::cuda {
namespace {

template <class F, class T> struct Forward {
  compute_t<T> p0;
  __device__ T operator()(T a, T b) const { return from_compute<T>(F::template y<compute_t<T>>(to_compute(a), to_compute(b), p0)); }
};

template <class F, int kind> void forward(const PointwiseViews& v) {
  auto run = [&](auto t) {
    using T = decltype(t);
    elementwise<T, T, T>("pointwise", Forward<F, T>{compute_t<T>(v.p0)}, v.out, v.in[0], v.in[1]);
  };
  if (as_float(v.dtype, run)) return;
  if constexpr (kind == NUMERIC) as_integer(v.dtype, run);
}

#define SF_BINARY(name, kind, ...)                                                           \
  SF_KERNEL(name##_forward.views, DeviceType::CUDA, "native", 0, (forward<name##_fn, kind>), \
            (kind == NUMERIC ? static_cast<bool (*)(const PointwiseViews&)>(nullptr) : &computes_in_floats))
#define SF_BINARY_P SF_BINARY
#include "scaffolding/ops/pointwise/binary.def"

// start + weight * (end - start), the form that is exact at the nearer end (as torch's).
template <class T> struct Lerp {
  __device__ T operator()(T start, T end, T weight) const {
    using C = compute_t<T>;
    C a = to_compute(start), b = to_compute(end), w = to_compute(weight);
    return from_compute<T>(abs(w) < C(0.5) ? a + w * (b - a) : b - (b - a) * (C(1) - w));
  }
};
void lerp(const PointwiseViews& v) {
  as_float(v.dtype, [&](auto t) {
    using T = decltype(t);
    elementwise<T, T, T, T>("lerp", Lerp<T>{}, v.out, v.in[0], v.in[1], v.in[2]);
  });
}
SF_KERNEL(lerp_forward.views, DeviceType::CUDA, "native", 0, lerp, computes_in_floats)

}  // namespace
}  // namespace sf::cuda
