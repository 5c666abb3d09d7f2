#include "scaffolding/optim/adadelta.h"

#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/optim/per_param.h"
#include "scaffolding/optim/rule_optimizer.h"

namespace sf::optim {

void AdadeltaOptions::check() const {
  SF_CHECK(lr >= 0, "Invalid learning rate: ", python_number(lr));
  check_option(rho >= 0 && rho <= 1, "rho", rho);
  check_option(eps >= 0, "epsilon", eps);
  check_option(weight_decay >= 0, "weight_decay", weight_decay);
}

void AdadeltaOptions::step(std::span<Update> updates) const {
  enum { kStep, kSquare, kDelta };
  each_param(*this, updates, weight_decay, [this](Turn& t) {
    Tensor &squares = t.statistic(kSquare), &deltas = t.statistic(kDelta);
    squares.mul_(Scalar(rho)).add_(square(t.grad), 1 - rho);
    Tensor delta = mul(sqrt(div(deltas + Scalar(eps), squares + Scalar(eps))), t.grad);
    deltas.mul_(Scalar(rho)).add_(square(delta), 1 - rho);
    t.param.add_(delta, -lr);
  });
}

SF_OPTIMIZER(AdadeltaOptions);

}  // namespace sf::optim
