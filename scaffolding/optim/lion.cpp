#include "scaffolding/optim/lion.h"

#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/optim/adam.h"
#include "scaffolding/optim/per_param.h"
#include "scaffolding/optim/rule_optimizer.h"

namespace sf::optim {

void LionOptions::check() const { check_adam(lr, betas, 0, weight_decay); }

void LionOptions::step(std::span<Update> updates) const {
  each_param(*this, updates, 0, [this](Turn& t) {
    if (weight_decay != 0) t.param.mul_(Scalar(1 - lr * weight_decay));
    Tensor& avg = t.statistic(1);
    t.param.add_(sign(add(avg, sub(t.grad, avg), 1 - betas[0])), -lr);
    move_towards(avg, t.grad, 1 - betas[1]);
  });
}

SF_OPTIMIZER(LionOptions);

}  // namespace sf::optim
