// Every line of loss.def on CUDA, and the gradients of both inputs.
#include "scaffolding/ops/loss/kernel.h"
#include "scaffolding/ops/pointwise/scalar_math.cuh"

namespace sf::cuda {
namespace {

template <class T> __device__ inline T max(T a, T b) { return maximum(a, b); }

#define SF_LOSS(name, loss, da, db)                                              \
  struct name##_fn {                                                             \
    static constexpr const char *kName = #name, *kBackward = #name "_backward";  \
    template <class T> __device__ static T value(T a, T b, T p) { return loss; } \
    template <class T> __device__ static T input(T a, T b, T p) { return da; }   \
    template <class T> __device__ static T target(T a, T b, T p) { return db; }  \
  };
#include "scaffolding/ops/loss/loss.def"
#undef SF_LOSS

template <class F, class T> struct Forward {
  compute_t<T> p;
  __device__ T operator()(T a, T b) const { return from_compute<T>(F::value(to_compute(a), to_compute(b), p)); }
};
template <class F, class T> struct Backward {
  compute_t<T> p;
  bool of_target;
  __device__ T operator()(T dy, T a, T b) const {
    auto x = to_compute(a), y = to_compute(b);
    return from_compute<T>(to_compute(dy) * (of_target ? F::target(x, y, p) : F::input(x, y, p)));
  }
};

template <class F> void forward(const PointwiseViews& v) {
  as_float(v.dtype, [&](auto t) {
    using T = decltype(t);
    elementwise<T, T, T>(F::kName, Forward<F, T>{compute_t<T>(v.p0)}, v.out, v.in[0], v.in[1]);
  });
}
template <class F> void backward(const PointwiseViews& v) {
  as_float(v.dtype, [&](auto t) {
    using T = decltype(t);
    elementwise<T, T, T, T>(F::kBackward, Backward<F, T>{compute_t<T>(v.p0), v.p1 != 0}, v.out, v.in[0], v.in[1],
                            v.in[2]);
  });
}

#define SF_LOSS(name, ...)                                                                               \
  SF_KERNEL(name##_forward.views, DeviceType::CUDA, "native", 0, forward<name##_fn>, computes_in_floats) \
  SF_KERNEL(name##_backward.views, DeviceType::CUDA, "native", 0, backward<name##_fn>, computes_in_floats)
#include "scaffolding/ops/loss/loss.def"
#undef SF_LOSS

}  // namespace
}  // namespace sf::cuda
