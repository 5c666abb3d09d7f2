#include "scaffolding/optim/asgd.h"

#include <cmath>

#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/optim/per_param.h"
#include "scaffolding/optim/rule_optimizer.h"

namespace sf::optim {

void ASGDOptions::check() const {
  SF_CHECK(lr >= 0, "Invalid learning rate: ", python_number(lr));
  check_option(lambd >= 0, "lambd", lambd);
  check_option(alpha >= 0, "alpha", alpha);
  check_option(weight_decay >= 0, "weight_decay", weight_decay);
}

void ASGDOptions::step(std::span<Update> updates) const {
  enum { kStep, kRate, kWeight, kAverage };
  each_param(*this, updates, weight_decay, [this](Turn& t) {
    float &rate = t.number(kRate, lr), &weight = t.number(kWeight, 1);
    t.param.mul_(Scalar(1 - lambd * double(rate))).add_(t.grad, -double(rate));
    Tensor& average = t.statistic(kAverage);
    if (weight == 1) average.copy_(t.param);
    else move_towards(average, t.param, weight);
    rate = float(lr / std::pow(1 + lambd * lr * t.step, alpha));
    weight = float(1 / std::max(1.0, t.step - t0));
  });
}

SF_OPTIMIZER(ASGDOptions);

}  // namespace sf::optim
