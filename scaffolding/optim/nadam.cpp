#include "scaffolding/optim/nadam.h"

#include <cmath>

#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/optim/adam.h"
#include "scaffolding/optim/per_param.h"
#include "scaffolding/optim/rule_optimizer.h"

namespace sf::optim {

void NAdamOptions::check() const {
  check_adam(lr, betas, eps, weight_decay);
  check_option(momentum_decay >= 0, "momentum_decay", momentum_decay);
}

void NAdamOptions::step(std::span<Update> updates) const {
  enum { kStep, kAvg, kSquare, kProduct };
  each_param(*this, updates, decoupled_weight_decay ? 0 : weight_decay, [this](Turn& t) {
    if (decoupled_weight_decay && weight_decay != 0) t.param.mul_(Scalar(1 - lr * weight_decay));
    auto momentum = [this](double step) { return betas[0] * (1 - 0.5 * std::pow(0.96, step * momentum_decay)); };
    double mu = momentum(t.step), next = momentum(t.step + 1);
    float& product = t.number(kProduct, 1);
    product = float(product * mu);
    Tensor &avg = t.statistic(kAvg), &squares = t.statistic(kSquare);
    move_towards(avg, t.grad, 1 - betas[0]);
    squares.mul_(Scalar(betas[1])).add_(square(t.grad), 1 - betas[1]);
    Tensor scale = sqrt(div(squares, wrapped(1 - std::pow(betas[1], t.step)))).add_(Scalar(eps));
    t.param.add_(div(t.grad, scale), -lr * (1 - mu) / (1 - product));
    t.param.add_(div(avg, scale), -lr * next / (1 - product * next));
  });
}

SF_OPTIMIZER(NAdamOptions);

}  // namespace sf::optim
