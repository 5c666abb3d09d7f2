#include "scaffolding/optim/adafactor.h"

#include <cmath>

#include "scaffolding/autograd/tape.h"
#include "scaffolding/backend/cuda_graph.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/matmul/matmul.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/reduce/reduce.h"
#include "scaffolding/optim/per_param.h"
#include "scaffolding/optim/rule_optimizer.h"

namespace sf::optim {

void AdafactorOptions::check() const {
  SF_CHECK(lr >= 0, "Learning rate should be >= 0 but is: ", python_number(lr));
  SF_CHECK(beta2_decay <= 0, "beta2_decay should be <= 0 but is: ", python_number(beta2_decay));
  SF_CHECK(!eps[0] || *eps[0] >= 0, "epsilon1 should be >= 0 but is: ", python_number(eps[0].value_or(0)));
  SF_CHECK(eps[1] && *eps[1] >= 0, "epsilon2 should be >= 0 but is: ", eps[1] ? python_number(*eps[1]) : "None");
  SF_CHECK(d >= 1, "Clipping threshold d should be >= 1 but is: ", python_number(d));
  SF_CHECK(weight_decay >= 0, "weight_decay should be >= 0 but is: ", python_number(weight_decay));
}

namespace {

enum { kStep, kRow, kColumn, kVariance };

double epsilon_of(DType t) {
  return t == kFloat64 ? 0x1p-52 : t == kFloat32 ? 0x1p-23 : t == kFloat16 ? 0x1p-10 : 0x1p-7;
}
double root_mean_square(const Tensor& x) { return x.numel() ? std::sqrt(mean(square(x)).item()) : 0; }

// A statistic of p, whose shape is checked; zeros at first.
Tensor& statistic(Update& u, size_t slot) {
  DType t = state_dtype(u.param);
  Tensor& s = u.slots[slot];
  if (!s) s = zeros(AdafactorOptions::slot_shape(slot, u.param), t, u.param.device());
  s = to_device(to_dtype(s, t), u.param.device());
  return s;
}

}  // namespace

Shape AdafactorOptions::slot_shape(size_t slot, const Tensor& param) {
  Shape s = param.shape();
  if (slot == kStep) return {};
  if (s.size() > 1 && slot == kRow) s[s.size() - 1] = 1;
  if (s.size() > 1 && slot == kColumn) s[s.size() - 2] = 1;
  return s;
}

void AdafactorOptions::step(std::span<Update> updates) const {
  SF_CHECK_AS(RuntimeError, !cuda::CudaGraph::recording(), kName,
              ".step: cannot be part of a CUDA graph, since the size of its steps is computed on the host; capture "
              "AdamW or AdamW8bit with capturable=True");
  autograd::NoGrad off;
  for (const Update& u : updates) {
    check_update(kName, u);
    for (size_t i = kRow; i <= kVariance; ++i) check_shape(kName, kSlots[i], u.slots[i], slot_shape(i, u.param));
  }
  for (Update& u : updates) {
    Tensor p = u.param.detach(), grad = to_dtype(u.grad.detach(), state_dtype(p));
    double floor1 = eps[0].value_or(epsilon_of(p.dtype()));
    prepare_step(u.slots[kStep]);
    double t = advance_step(u.slots[kStep]), weight = std::pow(t, beta2_decay);
    double alpha = std::max(*eps[1], root_mean_square(to_dtype(p, grad.dtype()))) * std::min(lr, 1 / std::sqrt(t));
    if (p.numel() == 0) continue;
    Tensor squares = square(grad), variance;
    if (p.ndim() > 1) {
      Tensor &rows = statistic(u, kRow), &columns = statistic(u, kColumn);
      move_towards(rows, mean(squares, {-1}, true), weight);
      move_towards(columns, mean(squares, {-2}, true), weight);
      variance = div(mul(rows, columns), clamp(mean(rows, {-2}, true), Scalar(floor1)));
    } else {
      Tensor& all = statistic(u, kVariance);
      move_towards(all, squares, weight);
      variance = all;
    }
    Tensor update = mul(rsqrt(clamp(variance, Scalar(floor1 * floor1))), grad);
    double divisor = std::max(1.0, root_mean_square(update) / d), sign = maximize ? 1 : -1;
    if (weight_decay != 0) p.mul_(Scalar(1 - lr * weight_decay));
    p.add_(to_dtype(update, p.dtype()), sign * alpha / divisor);
  }
}

SF_OPTIMIZER(AdafactorOptions);

}  // namespace sf::optim
