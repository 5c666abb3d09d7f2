// Averages of weights and unscaling of gradients, many tensors in one pass.
#include "scaffolding/optim/multi_tensor.h"

#include "scaffolding/optim/kernel.h"

namespace sf {
namespace SF_ISA {

static void lerp(const optim::LerpStep& a) {
  each_piece(a.tensors, a.count, 1, [&](const optim::LerpTensor& t, int64_t begin, int64_t count) {
    visit_pair(t.average_dtype, t.value_dtype, [&](auto p, auto g) {
      using P = typename decltype(p)::type;
      using G = typename decltype(g)::type;
      using V = Vec<P>;
      P* average = static_cast<P*>(t.average) + begin;
      const G* value = static_cast<const G*>(t.value) + begin;
      const V weight(a.weight);
      each_vector<P>(
          count, [&](int64_t i, int n) __attribute__((always_inline)) {
            V m = load_n(average + i, n);
            store_n(average + i, fma(weight, load_n(value + i, n) - m, m), n);
          });
    });
  });
}
static bool lerp_supports(const optim::LerpStep& a) {
  for (int64_t i = 0; i < a.count; ++i)
    if (!is_pair(a.tensors[i].average_dtype, a.tensors[i].value_dtype)) return false;
  return true;
}
SF_KERNEL(optim::lerp_step, DeviceType::CPU, "native", SF_ISA_PRIORITY, lerp, lerp_supports)

static void unscale(const optim::UnscaleStep& a) {
  each_piece(a.tensors, a.count, 1, [&](const optim::UnscaleTensor& t, int64_t begin, int64_t count) {
    visit_floating(t.dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      using V = Vec<T>;
      T* grad = static_cast<T*>(t.grad) + begin;
      const V factor(a.factor);
      // 0 * x is NaN exactly for the values that are not finite; lanes past n load as 0.
      Acc<T> sum = sum_vectors<T>(
          count, [&](int64_t i, int n) __attribute__((always_inline)) {
            V g = load_n(grad + i, n);
            store_n(grad + i, g * factor, n);
            return g * V(0.f);
          });
      if (sum != sum) __atomic_store_n(reinterpret_cast<int32_t*>(a.found_inf), 0x3f800000, __ATOMIC_RELAXED);  // 1.0f
    });
  });
}
static bool unscale_supports(const optim::UnscaleStep& a) {
  for (int64_t i = 0; i < a.count; ++i)
    if (!computes(a.tensors[i].dtype)) return false;
  return true;
}
SF_KERNEL(optim::unscale_step, DeviceType::CPU, "native", SF_ISA_PRIORITY, unscale, unscale_supports)

}  // namespace SF_ISA
}  // namespace sf
