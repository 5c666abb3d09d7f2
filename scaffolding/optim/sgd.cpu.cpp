#include "scaffolding/optim/kernel.h"
#include "scaffolding/optim/multi_tensor.h"

namespace sf {
namespace SF_ISA {

using optim::SgdStep;
using optim::SgdTensor;

template <class P, class G> static void sgd_update(const SgdStep& a, const SgdTensor& t, int64_t begin, int64_t count) {
  using V = Vec<P>;
  using A = Acc<P>;
  P* param = static_cast<P*>(t.param) + begin;
  const G* grad = static_cast<const G*>(t.grad) + begin;
  A* buffer = t.buffer ? static_cast<A*>(t.buffer) + begin : nullptr;
  A* master = sizeof(P) == 2 && t.master ? reinterpret_cast<A*>(t.master) + begin : nullptr;
  const V sign(a.maximize ? -1.0 : 1.0), decay(a.weight_decay), momentum(a.momentum), damped(1 - a.dampening),
      lr(-a.lr);
  each_vector<P>(
      count, [&](int64_t i, int n) __attribute__((always_inline)) {
        V g = load_n(grad + i, n) * sign, p = master ? load_n(master + i, n) : load_n(param + i, n);
        g = fma(decay, p, g);
        if (buffer) {
          V b = t.first ? g : fma(damped, g, load_n(buffer + i, n) * momentum);
          store_n(buffer + i, b, n);
          g = a.nesterov ? fma(momentum, b, g) : b;
        }
        p = fma(lr, g, p);
        if (master) store_n(master + i, p, n);
        store_n(param + i, p, n);
      });
}

static void sgd(const SgdStep& a) {
  each_piece(a.tensors, a.count, 1, [&](const SgdTensor& t, int64_t begin, int64_t count) {
    visit_pair(t.param_dtype, t.grad_dtype, [&](auto p, auto g) {
      sgd_update<typename decltype(p)::type, typename decltype(g)::type>(a, t, begin, count);
    });
  });
}
static bool sgd_supports(const SgdStep& a) {
  for (int64_t i = 0; i < a.count; ++i)
    if (!is_pair(a.tensors[i].param_dtype, a.tensors[i].grad_dtype)) return false;
  return true;
}
SF_KERNEL(optim::sgd_step, DeviceType::CPU, "native", SF_ISA_PRIORITY, sgd, sgd_supports)

}  // namespace SF_ISA
}  // namespace sf
