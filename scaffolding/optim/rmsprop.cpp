#include "scaffolding/optim/rmsprop.h"

#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/optim/per_param.h"
#include "scaffolding/optim/rule_optimizer.h"

namespace sf::optim {

void RMSpropOptions::check() const {
  SF_CHECK(lr >= 0, "Invalid learning rate: ", python_number(lr));
  check_option(eps >= 0, "epsilon", eps);
  check_option(momentum >= 0, "momentum", momentum);
  check_option(weight_decay >= 0, "weight_decay", weight_decay);
  check_option(alpha >= 0, "alpha", alpha);
}

void RMSpropOptions::step(std::span<Update> updates) const {
  enum { kStep, kSquare, kMomentum, kMean };
  each_param(*this, updates, weight_decay, [this](Turn& t) {
    Tensor& squares = t.statistic(kSquare);
    squares.mul_(Scalar(alpha)).add_(square(t.grad), 1 - alpha);
    Tensor variance = squares;
    if (centered) {
      Tensor& mean = t.statistic(kMean);
      move_towards(mean, t.grad, 1 - alpha);
      variance = sub(squares, square(mean));
    }
    Tensor update = div(t.grad, sqrt(variance).add_(Scalar(eps)));
    if (momentum > 0) update = t.statistic(kMomentum).mul_(Scalar(momentum)).add_(update);
    t.param.add_(update, -lr);
  });
}

SF_OPTIMIZER(RMSpropOptions);

}  // namespace sf::optim
