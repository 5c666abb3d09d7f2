// scaffolding_tests --bench: the samples of the tests, timed. They are small, so that this shows what a call costs
// before the arithmetic does; rows of real sizes are in *_bench.cpp.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <limits>

#include "scaffolding/autograd/engine.h"
#include "scaffolding/autograd/mode.h"
#include "scaffolding/core/provider.h"
#include "scaffolding/ops/op_check.h"
#include "scaffolding/ops/op_listing.h"

namespace sf::test {
namespace {

constexpr int kRepeats = 5;

// Microseconds of one call: the median of kRepeats blocks of calls, each of about 200 us.
template <class F> double microseconds(const F& f) {
  using Clock = std::chrono::steady_clock;
  auto block = [&](int64_t calls) {
    auto start = Clock::now();
    for (int64_t i = 0; i < calls; ++i) f();
    return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
  };
  f();  // packs weights, makes primitives
  int64_t calls = std::clamp<int64_t>(int64_t(200 / std::max(block(1), 0.01)), 1, 10000);
  double times[kRepeats];
  for (double& t : times) t = block(calls) / double(calls);
  std::nth_element(times, times + kRepeats / 2, times + kRepeats);
  return times[kRepeats / 2];
}

// The pass from given gradients of the outputs to the gradients of the floating inputs; NaN where there is none.
double backward_microseconds(const OpEntry& op, const std::vector<Value>& args) {
  Tensors leaves;
  auto with_leaves =
      map_tensors(args, [&](const Tensor& t) { return is_real(t) ? leaves.emplace_back(leaf_of(t)) : t; });
  Tensors ys, dys;
  for (auto& y : outputs(call_seeded(op, with_leaves)))
    if (y && y.requires_grad()) {
      ys.push_back(y);
      dys.push_back(y.detach());
    }
  if (ys.empty()) return std::numeric_limits<double>::quiet_NaN();
  return microseconds([&] { autograd::grad(ys, leaves, dys, {.retain_graph = true}, true); });
}

}  // namespace

void time_samples(const std::string& filter) {
  std::printf("%12s %12s  call, provider\n", "forward us", "backward us");
  for (OpTest* t : op_tests()) {
    if (std::string(t->name).find(filter) == std::string::npos) continue;
    const OpEntry* op = find_op(t->name);
    SF_CHECK(op, t->name, " has samples but is not registered with SF_OP");
    if (t->all.empty()) t->samples();
    for (auto& s : t->all) {
      auto args = complete(*op, *s);
      for (DType dtype : {kFloat32, kBFloat16}) {
        bool any_real = !real_inputs(args).empty();
        if (dtype == kBFloat16 && (!s->low_precision || !any_real)) continue;
        auto rounded = map_tensors(args, [&](const Tensor& x) { return to_dtype_keeping_layout(x, dtype); });
        for (auto& label : provider_labels(*op)) {
          if (!label.empty()) pin_provider("*", label);
          double forward = microseconds([&] {
            autograd::NoGrad off;
            call_seeded(*op, rounded);
          });
          double backward = op->differentiable && s->grad ? backward_microseconds(*op, rounded)
                                                          : std::numeric_limits<double>::quiet_NaN();
          unpin_providers();
          std::printf("%12.2f %12.2f  %s %s\n", forward, backward, describe(*op, rounded).c_str(),
                      label.empty() ? "default" : label.c_str());
        }
      }
    }
  }
}

}  // namespace sf::test
