// Kernel calls as Python sees them: behind scaffolding.profiler.
#include "bind_profiler.h"

#include <nanobind/stl/string.h>

#include "bind_tensor.h"
#include "py_callable.h"
#include "scaffolding/ops/kernel_cost.h"

namespace nb = nanobind;

namespace sf::py {

namespace {
struct Watch {
  KernelWatcher watcher;
};
}  // namespace

void bind_profiler(nb::module_& m) {
  nb::class_<Watch>(m, "_KernelWatch");
  // report(kernel, provider, operands, flop, bytes, seconds) after each call, until the result is gone.
  m.def(
      "_watch_kernels",
      [](nb::handle report) {
        return new Watch{KernelWatcher([held = Held(report)](const KernelCall& call) {
          const KernelCost cost = cost_of(call);
          nb::gil_scoped_acquire gil;
          held.get()(call.table.name(), provider_label(call.entry), cost.operands, cost.flop, cost.bytes, call.wall);
        })};
      },
      nb::rv_policy::take_ownership);
}

}  // namespace sf::py
