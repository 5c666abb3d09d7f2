#include "scaffolding/optim/adamax.h"

#include <cmath>

#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/optim/adam.h"
#include "scaffolding/optim/per_param.h"
#include "scaffolding/optim/rule_optimizer.h"

namespace sf::optim {

void AdamaxOptions::check() const { check_adam(lr, betas, eps, weight_decay); }

void AdamaxOptions::step(std::span<Update> updates) const {
  enum { kStep, kAvg, kLargest };
  each_param(*this, updates, weight_decay, [this](Turn& t) {
    Tensor &avg = t.statistic(kAvg), &largest = t.statistic(kLargest);
    move_towards(avg, t.grad, 1 - betas[0]);
    largest.copy_(maximum(mul(largest, wrapped(betas[1])), abs(t.grad).add_(Scalar(eps))));
    t.param.add_(div(avg, largest), -lr / (1 - std::pow(betas[0], t.step)));
  });
}

SF_OPTIMIZER(AdamaxOptions);

}  // namespace sf::optim
