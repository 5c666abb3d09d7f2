#include "scaffolding/optim/adafactor.h"

#include <cmath>

#include "scaffolding/autograd/tape.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/matmul/matmul.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/reduce/reduce.h"

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

double epsilon_of(DType t) { return t == kFloat64 ? 0x1p-52 : t == kFloat32 ? 0x1p-23 : t == kFloat16 ? 0x1p-10 : 0x1p-7; }
double root_mean_square(const Tensor& x) { return x.numel() ? std::sqrt(mean(square(x)).item()) : 0; }

// A statistic of the given shape; zeros at first.
Tensor& statistic(Tensor& slot, const char* name, const Shape& shape, const Tensor& p) {
  DType t = state_dtype(p);
  if (!slot) slot = zeros(shape, t, p.device());
  check_shape(AdafactorOptions::kName, name, slot, shape);
  if (slot.dtype() != t) slot = to_dtype(slot, t);
  return slot;
}

// average += weight * (value - average)
void move_towards(Tensor& average, const Tensor& value, double weight) { average.add_(sub(value, average), weight); }

void check_statistics(const Update& u) {
  const Shape& s = u.param.shape();
  Shape row = s, column = s;
  if (s.size() > 1) row[s.size() - 1] = column[s.size() - 2] = 1;
  check_shape(AdafactorOptions::kName, "row_var", u.slots[kRow], row);
  check_shape(AdafactorOptions::kName, "col_var", u.slots[kColumn], column);
  check_shape(AdafactorOptions::kName, "variance", u.slots[kVariance], s);
}

}  // namespace

void AdafactorOptions::step(std::span<Update> updates) const {
  autograd::NoGrad off;
  for (const Update& u : updates) {
    check_update(kName, u);
    check_statistics(u);
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
      Shape row = p.shape(), column = p.shape();
      row[p.ndim() - 1] = column[p.ndim() - 2] = 1;
      Tensor& rows = statistic(u.slots[kRow], "row_var", row, p);
      Tensor& columns = statistic(u.slots[kColumn], "col_var", column, p);
      move_towards(rows, mean(squares, {-1}, true), weight);
      move_towards(columns, mean(squares, {-2}, true), weight);
      variance = div(mul(rows, columns), clamp(mean(rows, {-2}, true), Scalar(floor1)));
    } else {
      Tensor& all = statistic(u.slots[kVariance], "variance", p.shape(), p);
      move_towards(all, squares, weight);
      variance = all;
    }
    Tensor update = mul(rsqrt(clamp(variance, Scalar(floor1 * floor1))), grad);
    double divisor = std::max(1.0, root_mean_square(update) / d), sign = maximize ? 1 : -1;
    if (weight_decay != 0) p.mul_(Scalar(1 - lr * weight_decay));
    p.add_(to_dtype(update, p.dtype()), sign * alpha / divisor);
  }
}

}  // namespace sf::optim
