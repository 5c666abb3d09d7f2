#include "scaffolding/autograd/anomaly.h"

#include <atomic>
#include <cmath>

#include "scaffolding/core/parallel.h"

namespace sf::autograd {

NonFinite count_non_finite(const Tensor& t) {
  if (!t || !is_floating(t.dtype()) || t.device().is_meta() || t.numel() == 0) return {};
  NoGrad off;
  Tensor x = t.detach().to(Device::CPU).contiguous();
  std::atomic<int64_t> nan{0}, inf{0};
  visit_dtype(x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (!std::is_integral_v<T>) {
      auto* p = static_cast<const T*>(x.data_ptr());
      parallel_for(x.numel(), 1 << 15, [&](int64_t b, int64_t e) {
        int64_t nans = 0, infs = 0;
        for (int64_t i = b; i < e; ++i) {
          double v;
          if constexpr (std::is_same_v<T, double>) v = p[i];
          else v = to_float(p[i]);
          nans += v != v;
          infs += v - v != 0 && v == v;
        }
        nan += nans;
        inf += infs;
      });
    }
  });
  return {nan, inf};
}

static std::string shapes(const Tensors& ts) {
  Message m;
  const char* comma = "";
  for (auto& t : ts) {
    m << comma;
    if (t) m << t.dtype() << t.shape();
    else m << "none";
    comma = ", ";
  }
  return m.str();
}

static NonFinite count_all(const Tensors& ts) {
  NonFinite sum;
  for (auto& t : ts) {
    NonFinite n = count_non_finite(t);
    sum.nan += n.nan;
    sum.inf += n.inf;
  }
  return sum;
}

static void check(const char* op, const char* what, const char* from, const Tensors& results, const Tensors& sources) {
  for (size_t i = 0; i < results.size(); ++i) {
    NonFinite made = count_non_finite(results[i]);
    if (!made) continue;
    NonFinite before = count_all(sources);
    if (!made.nan && before) continue;  // an Inf passed on
    fail<RuntimeError>("detect_anomaly: ", op, ": ", what, " ", i, " of shape ", results[i].shape(), " has ", made.nan,
                       " NaN and ", made.inf, " Inf; ", from, " (", shapes(sources), ") ",
                       before.nan   ? "already contained NaN"
                       : before.inf ? "contained Inf"
                                    : "were finite");
  }
}

void check_forward_finite(const char* op, const Tensors& outputs, const Tensors& inputs) {
  check(op, "output", "its inputs", outputs, inputs);
}
void check_backward_finite(const char* op, const Tensors& output_gradients, const Tensors& input_gradients) {
  check(op, "backward: the gradient of input", "the gradients of its outputs", input_gradients, output_gradients);
}

}  // namespace sf::autograd
