#include "scaffolding/optim/radam.h"

#include <cmath>

#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/optim/adam.h"
#include "scaffolding/optim/per_param.h"
#include "scaffolding/optim/rule_optimizer.h"

namespace sf::optim {

void RAdamOptions::check() const { check_adam(lr, betas, eps, weight_decay); }

void RAdamOptions::step(std::span<Update> updates) const {
  enum { kStep, kAvg, kSquare };
  each_param(*this, updates, decoupled_weight_decay ? 0 : weight_decay, [this](Turn& t) {
    if (decoupled_weight_decay && weight_decay != 0) t.param.mul_(Scalar(1 - lr * weight_decay));
    Tensor &avg = t.statistic(kAvg), &squares = t.statistic(kSquare);
    move_towards(avg, t.grad, 1 - betas[0]);
    squares.mul_(Scalar(betas[1])).add_(square(t.grad), 1 - betas[1]);
    double power = std::pow(betas[1], t.step), correction2 = 1 - power;
    double rate = lr / (1 - std::pow(betas[0], t.step));
    // The length of the simple moving average that has as much variance; at its end, and now.
    double longest = 2 / (1 - betas[1]) - 1, length = longest - 2 * t.step * power / correction2;
    if (length <= 5) {
      t.param.add_(avg, -rate);
      return;
    }
    double rectified = std::sqrt((length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length));
    t.param.add_(div(avg, sqrt(squares).add_(Scalar(eps))), -rate * std::sqrt(correction2) * rectified);
  });
}

SF_OPTIMIZER(RAdamOptions);

}  // namespace sf::optim
