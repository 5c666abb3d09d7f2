#include "scaffolding/optim/adagrad.h"

#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/optim/per_param.h"
#include "scaffolding/optim/rule_optimizer.h"

namespace sf::optim {

void AdagradOptions::check() const {
  SF_CHECK(lr >= 0, "Invalid learning rate: ", python_number(lr));
  check_option(lr_decay >= 0, "lr_decay", lr_decay);
  check_option(weight_decay >= 0, "weight_decay", weight_decay);
  check_option(initial_accumulator_value >= 0, "initial_accumulator_value", initial_accumulator_value);
  check_option(eps >= 0, "epsilon", eps);
}

void AdagradOptions::step(std::span<Update> updates) const {
  each_param(*this, updates, weight_decay, [this](Turn& t) {
    Tensor& sum = t.statistic(1, initial_accumulator_value).add_(square(t.grad));
    t.param.add_(div(t.grad, sqrt(sum).add_(Scalar(eps))), -lr / (1 + (t.step - 1) * lr_decay));
  });
}

SF_OPTIMIZER(AdagradOptions);

}  // namespace sf::optim
