// Rows of the losses of loss.def.
#include "scaffolding/backend/cpu/simd_rows.h"
#include "scaffolding/ops/loss/kernel.h"

namespace sf {
namespace SF_ISA {
namespace {

#define SF_LOSS(name, loss, grad_a, grad_b)                                                                      \
  struct name##_fn {                                                                                             \
    template <class T> SF_INLINE static T y([[maybe_unused]] T a, [[maybe_unused]] T b, [[maybe_unused]] T p) {  \
      return loss;                                                                                               \
    }                                                                                                            \
    template <class T> SF_INLINE static T da([[maybe_unused]] T a, [[maybe_unused]] T b, [[maybe_unused]] T p) { \
      return grad_a;                                                                                             \
    }                                                                                                            \
    template <class T> SF_INLINE static T db([[maybe_unused]] T a, [[maybe_unused]] T b, [[maybe_unused]] T p) { \
      return grad_b;                                                                                             \
    }                                                                                                            \
  };
#include "scaffolding/ops/loss/loss.def"
#undef SF_LOSS

template <class F> void forward(const PointwiseRow& r) {
  visit_floating(
      r.dtype, [&](auto tag) __attribute__((always_inline)) {
        using T = typename decltype(tag)::type;
        using V = Vec<T>;
        auto *a = static_cast<const T*>(r.in[0]), *b = static_cast<const T*>(r.in[1]);
        auto* y = static_cast<T*>(r.out);
        V p = V(Acc<T>(r.p0));
        each_vector<T>(
            r.n, [&](int64_t i, int m) __attribute__((always_inline)) {
              store_n(y + i, F::template y<V>(load_n(a + i, m), load_n(b + i, m), p), m);
            });
      });
}

template <class F> void backward(const PointwiseRow& r) {
  visit_floating(
      r.dtype, [&](auto tag) __attribute__((always_inline)) {
        using T = typename decltype(tag)::type;
        using V = Vec<T>;
        auto *dy = static_cast<const T*>(r.in[0]), *a = static_cast<const T*>(r.in[1]),
             *b = static_cast<const T*>(r.in[2]);
        auto* dx = static_cast<T*>(r.out);
        V p = V(Acc<T>(r.p0));
        if (r.p1 == 0) {
          each_vector<T>(
              r.n, [&](int64_t i, int m) __attribute__((always_inline)) {
                store_n(dx + i, load_n(dy + i, m) * F::template da<V>(load_n(a + i, m), load_n(b + i, m), p), m);
              });
        } else {
          each_vector<T>(
              r.n, [&](int64_t i, int m) __attribute__((always_inline)) {
                store_n(dx + i, load_n(dy + i, m) * F::template db<V>(load_n(a + i, m), load_n(b + i, m), p), m);
              });
        }
      });
}

bool supports(const PointwiseRow& r) { return computes(r.dtype); }

#define SF_LOSS(name, ...)                                                                            \
  SF_KERNEL(name##_forward, DeviceType::CPU, "native", SF_ISA_PRIORITY, forward<name##_fn>, supports) \
  SF_KERNEL(name##_backward, DeviceType::CPU, "native", SF_ISA_PRIORITY, backward<name##_fn>, supports)
#include "scaffolding/ops/loss/loss.def"
#undef SF_LOSS

}  // namespace
}  // namespace SF_ISA
}  // namespace sf
