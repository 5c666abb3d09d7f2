#include "scaffolding/ops/ctc_loss/ctc_loss.h"

#include <cmath>

#include "scaffolding/autograd/engine.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/op_test.h"
#include "scaffolding/ops/reduce/reduce.h"
#include "scaffolding/ops/softmax/softmax.h"

namespace sf::test {

namespace {

Tensor ints(const std::vector<int64_t>& v) { return tensor(v, {int64_t(v.size())}); }

}  // namespace

// no_grad throughout: the gradient is that of normalised log_probs, which differences of single numbers leave. What
// log_softmax passes on is checked below, and against torch by nn.CTCLoss.
SF_OP_TEST(ctc_loss) {
  Tensor targets = tensor(std::vector<int64_t>{1, 2, 2, 3, 1, 3}, {2, 3});
  auto probs = [&](const Shape& size) { return log_softmax(randn(size), -1); };
  sample(probs({8, 2, 4}), targets, ints({8, 6}), ints({3, 2})).no_grad();
  sample(probs({8, 2, 4}), ints({1, 2, 2, 3, 1}), ints({8, 6}), ints({3, 2}), 0, "none").no_grad();
  sample(probs({8, 2, 4}), targets, ints({8, 2}), ints({3, 3}), 0, "sum", true).no_grad();
  sample(probs({8, 2, 4}), targets, ints({8, 2}), ints({3, 3}), 0, "none").no_grad();
  sample(probs({2, 8, 4}).transpose(0, 1), targets, ints({7, 8}), ints({0, 3}), 0, "none").no_grad();
  sample(probs({6, 4}), ints({0, 2, 1}), ints({6}).reshape({}), ints({3}).reshape({}), 3).no_grad();
  rejects("log_probs must be", randn({3}), targets, ints({3, 3}), ints({3, 3}));
  rejects("blank must be one of 4 classes", randn({5, 2, 4}), targets, ints({3, 3}), ints({3, 3}), 4);
  rejects("targets must be [1, S]", randn({5, 1, 4}), targets, ints({3}), ints({3}));
  rejects("targets must have shape [4]", randn({5, 2, 4}), ints({1, 2, 3}), ints({3, 3}), ints({2, 2}));
  rejects("input_lengths must be between 0 and 5", randn({5, 2, 4}), targets, ints({3, 6}), ints({3, 3}));
  rejects("target_lengths must be between 0 and 3", randn({5, 2, 4}), targets, ints({3, 3}), ints({3, 4}));
  rejects("input_lengths must have shape [2]", randn({5, 2, 4}), targets, ints({3}), ints({3, 3}));
  rejects("target 3 is not one of 3 classes", randn({5, 2, 3}), targets, ints({3, 3}), ints({3, 3}));
  rejects("must be integers", randn({5, 2, 4}), randn({2, 3}), ints({3, 3}), ints({3, 3}));
}

namespace {

TEST(ctc_loss, the_gradient_that_log_softmax_passes_on) {
  Tensor targets = tensor(std::vector<int64_t>{1, 2, 2, 3, 1, 3}, {2, 3}), input = ints({5, 4}), target = ints({3, 2});
  std::vector<double> numbers;
  for (int i = 0; i < 40; ++i) numbers.push_back(std::sin(double(i * i)));
  auto loss = [&](const Tensor& x) { return ctc_loss(log_softmax(x, 2), targets, input, target, 0, "sum"); };
  Tensor x = tensor(numbers, {5, 2, 4}, kFloat64).requires_grad_();
  loss(x).backward();
  std::vector<double> got = x.grad().to_vector();
  for (size_t i = 0; i < numbers.size(); ++i) {
    double side[2];
    for (int s = 0; s < 2; ++s) {
      auto moved = numbers;
      moved[i] += s ? -1e-6 : 1e-6;
      side[s] = loss(tensor(moved, {5, 2, 4}, kFloat64)).item();
    }
    EXPECT_NEAR(got[i], (side[0] - side[1]) / 2e-6, 1e-6) << i;
  }
}

TEST(ctc_loss, an_impossible_target_has_no_gradient_with_zero_infinity) {
  Tensor x = zeros({2, 1, 3}, kFloat32).requires_grad_();
  Tensor y = ctc_loss(log_softmax(x, 2), ints({1, 1}).reshape({1, 2}), ints({2}), ints({2}), 0, "sum", true);
  EXPECT_EQ(y.item(), 0);
  y.backward();
  EXPECT_EQ(x.grad().to_vector(), std::vector<double>(6, 0.0));
}

TEST(ctc_loss, refuses_to_be_differentiated_twice) {
  Tensor x = zeros({2, 1, 3}, kFloat32).requires_grad_();
  Tensor y = ctc_loss(log_softmax(x, 2), ints({1}).reshape({1, 1}), ints({2}), ints({1}));
  EXPECT_THROW(autograd::grad({y}, {x}, {}, {.create_graph = true}), RuntimeError);
}

}  // namespace
}  // namespace sf::test
