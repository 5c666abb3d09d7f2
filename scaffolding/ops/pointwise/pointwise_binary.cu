// Every op of binary.def on CUDA, and lerp.
#include "scaffolding/ops/pointwise/scalar_math.cuh"

namespace sf::cuda {
namespace {

template <class F> constexpr const char* kName = nullptr;  // of the op, in errors
#define SF_BINARY(name, ...) template <> constexpr const char* kName<name##_fn> = #name;
#define SF_BINARY_P SF_BINARY
#include "scaffolding/ops/pointwise/binary.def"
#undef SF_BINARY
#undef SF_BINARY_P

template <class F, class T> struct Forward {
  compute_t<T> p0;
  __device__ T operator()(T a, T b) const {
    return from_compute<T>(F::template y<compute_t<T>>(to_compute(a), to_compute(b), p0));
  }
};

// One operand is a number, which takes part in the precision of the computation.
template <class F, class T, bool left> struct WithNumber {
  compute_t<T> number, p0;
  __device__ T operator()(T x) const {
    if constexpr (left) return from_compute<T>(F::template y<compute_t<T>>(number, to_compute(x), p0));
    else return from_compute<T>(F::template y<compute_t<T>>(to_compute(x), number, p0));
  }
};

template <class F, int kind> void forward(const PointwiseViews& v) {
  auto run = [&](auto t) {
    using T = decltype(t);
    if constexpr (!std::is_integral_v<T>) {
      compute_t<T> number(v.p1), p0(v.p0);
      if (!v.in[0]) return elementwise<T, T>(kName<F>, WithNumber<F, T, true>{number, p0}, v.out, v.in[1]);
      if (!v.in[1]) return elementwise<T, T>(kName<F>, WithNumber<F, T, false>{number, p0}, v.out, v.in[0]);
    }
    elementwise<T, T, T>(kName<F>, Forward<F, T>{compute_t<T>(v.p0)}, v.out, v.in[0], v.in[1]);
  };
  if (as_float(v.dtype, run)) return;
  if constexpr (kind == NUMERIC) as_integer(v.dtype, run);
}

#define SF_BINARY(name, kind, ...)                                                           \
  SF_KERNEL(name##_forward.views, DeviceType::CUDA, "native", 0, (forward<name##_fn, kind>), \
            (kind == NUMERIC ? static_cast<bool (*)(const PointwiseViews&)>(nullptr) : &computes_in_floats))
#define SF_BINARY_P SF_BINARY
#include "scaffolding/ops/pointwise/binary.def"

template <class T> struct Lerp {
  __device__ T operator()(T start, T end, T weight) const {
    return from_compute<T>(lerp_of(to_compute(start), to_compute(end), to_compute(weight)));
  }
};
template <class T> struct LerpBy {
  compute_t<T> weight;
  __device__ T operator()(T start, T end) const {
    return from_compute<T>(lerp_of(to_compute(start), to_compute(end), weight));
  }
};
void lerp(const PointwiseViews& v) {
  as_float(v.dtype, [&](auto t) {
    using T = decltype(t);
    if (!v.in[2]) return elementwise<T, T, T>("lerp", LerpBy<T>{compute_t<T>(v.p1)}, v.out, v.in[0], v.in[1]);
    elementwise<T, T, T, T>("lerp", Lerp<T>{}, v.out, v.in[0], v.in[1], v.in[2]);
  });
}
SF_KERNEL(lerp_forward.views, DeviceType::CUDA, "native", 0, lerp, computes_in_floats)

}  // namespace
}  // namespace sf::cuda
