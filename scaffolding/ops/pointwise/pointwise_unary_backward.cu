// Gradients of every op of unary.def on CUDA. in: dy, x, y; an expression reads dy and at most one of the others.
#include "scaffolding/ops/pointwise/scalar_math.cuh"

namespace sf::cuda {
namespace {

template <class F> constexpr const char* kName = nullptr;  // in errors
#define SF_UNARY(name, ...) template <> constexpr const char* kName<name##_fn> = #name "_backward";
#define SF_UNARY_P SF_UNARY
#include "scaffolding/ops/pointwise/unary.def"
#undef SF_UNARY
#undef SF_UNARY_P

template <class F, class T, int saves> struct Backward {
  compute_t<T> p0, p1;
  __device__ T operator()(T dy) const {
    using C = compute_t<T>;
    return from_compute<T>(gradient_of<F>(to_compute(dy), C(0), C(0), p0, p1));
  }
  __device__ T operator()(T dy, T saved) const {
    using C = compute_t<T>;
    C s = to_compute(saved);
    return from_compute<T>(gradient_of<F>(to_compute(dy), saves == X ? s : C(0), saves == Y ? s : C(0), p0, p1));
  }
};

template <class F, int saves> void backward(const PointwiseViews& v) {
  static_assert(saves == NONE || saves == X || saves == Y);
  as_float(v.dtype, [&](auto t) {
    using T = decltype(t);
    Backward<F, T, saves> f{compute_t<T>(v.p0), compute_t<T>(v.p1)};
    if constexpr (saves == NONE) elementwise<T, T>(kName<F>, f, v.out, v.in[0]);
    else elementwise<T, T, T>(kName<F>, f, v.out, v.in[0], v.in[saves == X ? 1 : 2]);
  });
}

#define SF_UNARY(name, kind, saves, ...) \
  SF_KERNEL(name##_backward.views, DeviceType::CUDA, "native", 0, (backward<name##_fn, saves>), computes_in_floats)
#define SF_UNARY_P SF_UNARY
#include "scaffolding/ops/pointwise/unary.def"

}  // namespace
}  // namespace sf::cuda
