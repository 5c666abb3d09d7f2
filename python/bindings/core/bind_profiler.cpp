// Kernel calls as Python sees them: behind scaffolding.profiler.
#include "python/bindings/core/bind_profiler.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <mutex>
#include <vector>

#include "scaffolding/ops/kernel_cost.h"

namespace nb = nanobind;

namespace sf::py {

namespace {

struct Record {
  std::string kernel, provider;
  KernelCost cost;
  double seconds;
  std::vector<int64_t> counted;
};

// Kernels report from whatever thread runs them, which must not wait for the interpreter:
// whoever has it may be waiting for them.
class Watch {
 public:
  using Counter = int64_t (*)(int which);
  Watch(uintptr_t counter, std::vector<int> which)
      : counter_(reinterpret_cast<Counter>(counter)),
        which_(std::move(which)),
        before_(now()),
        watcher_([this](const KernelCall& call) { report(call); }) {}

  nb::list take() {
    std::vector<Record> taken;
    {
      std::lock_guard lock(mutex_);
      taken.swap(records_);
    }
    nb::list rows;
    for (Record& r : taken)
      rows.append(
          nb::make_tuple(r.kernel, r.provider, r.cost.operands, r.cost.flop, r.cost.bytes, r.seconds, r.counted));
    return rows;
  }

 private:
  std::vector<int64_t> now() const {
    std::vector<int64_t> counts;
    for (int which : which_) counts.push_back(counter_(which));
    return counts;
  }
  void report(const KernelCall& call) {
    Record r{call.table.name(), provider_label(call.entry), cost_of(call), call.wall, {}};
    std::lock_guard lock(mutex_);
    r.counted = now();
    std::vector<int64_t> until = r.counted;
    for (size_t i = 0; i < until.size(); ++i) r.counted[i] -= before_[i];
    before_ = std::move(until);
    records_.push_back(std::move(r));
  }

  Counter counter_;
  std::vector<int> which_;
  std::vector<int64_t> before_;
  std::mutex mutex_;
  std::vector<Record> records_;
  KernelWatcher watcher_;
};

}  // namespace

void bind_profiler(nb::module_& m) {
  // counter: the address of a C function of which of its numbers, 0 with no `which`. Watches for as long as it lives.
  nb::class_<Watch>(m, "_KernelWatch")
      .def(nb::init<uintptr_t, std::vector<int>>(), nb::arg("counter"), nb::arg("which"))
      .def("take", &Watch::take);
}

}  // namespace sf::py
