#include "scaffolding/optim/rprop.h"

#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/optim/per_param.h"
#include "scaffolding/optim/rule_optimizer.h"

namespace sf::optim {

void RpropOptions::check() const {
  SF_CHECK(lr >= 0, "Invalid learning rate: ", python_number(lr));
  SF_CHECK(etas[0] > 0 && etas[0] < 1 && etas[1] > 1, "Invalid eta values: ", python_number(etas[0]), ", ",
           python_number(etas[1]));
}

void RpropOptions::step(std::span<Update> updates) const {
  enum { kStep, kPrevious, kSize };
  each_param(*this, updates, 0, [this](Turn& t) {
    Tensor &previous = t.statistic(kPrevious), &size = t.statistic(kSize, lr);
    Tensor agreement = mul(t.grad, previous), turned = lt(agreement, wrapped(0.));
    Tensor kept = masked_fill(ones_like(size), gt(agreement, wrapped(0.)), etas[1]);
    size.copy_(clamp(mul(size, masked_fill(kept, turned, etas[0])), Scalar(step_sizes[0]), Scalar(step_sizes[1])));
    previous.copy_(masked_fill(t.grad, turned, 0.));
    t.param.add_(mul(sign(previous), size), -1);
  });
}

SF_OPTIMIZER(RpropOptions);

}  // namespace sf::optim
