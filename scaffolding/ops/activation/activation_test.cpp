#include "scaffolding/ops/activation/activation.h"

#include <cmath>

#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/op_test.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/reduce/reduce.h"

namespace sf::test {

SF_OP_TEST(hardtanh) {
  sample(distinct({4, 5}));
  sample(distinct({5, 4}).transpose(0, 1), -0.33, 1.57);
  sample(randn({0}));
  rejects("min_val must not be above", randn({3}), 2.0, 1.0);
  rejects("must be a floating-point tensor", randint(0, 3, {3}));
}
SF_OP_TEST(relu6) {
  sample(distinct({10, 10}));
  rejects("must be a floating-point tensor", randint(0, 3, {3}));
}
SF_OP_TEST(hardsigmoid) {
  sample(distinct({10, 10}));
  rejects("must be a floating-point tensor", randint(0, 3, {3}));
}
SF_OP_TEST(celu) {
  sample(distinct({4, 5}));
  sample(distinct({4, 5}), 0.33);
  rejects("alpha must be positive", randn({3}), 0.0);
}
SF_OP_TEST(selu) {
  sample(distinct({4, 5}));
  rejects("must be a floating-point tensor", randint(0, 3, {3}));
}
SF_OP_TEST(prelu) {
  sample(distinct({4, 5}), rand({1}));
  sample(distinct({2, 3, 4}), randn({3}));
  sample(distinct({4, 3}).transpose(0, 1), randn({4}));
  sample(distinct({6}), randn({}));
  sample(randn({0, 3}), randn({3}));
  rejects("one for each of 3 channels", randn({2, 3}), randn({2}));
  rejects("must hold one number", randn({3}), randn({3}));
  rejects("must be a tensor", randn({3}), none);
}
SF_OP_TEST(logsigmoid) {
  sample(distinct({8, 8}));
  rejects("must be a floating-point tensor", randint(0, 3, {3}));
}
SF_OP_TEST(softsign) {
  sample(distinct({4, 5}));
  rejects("must be a floating-point tensor", randint(0, 3, {3}));
}
SF_OP_TEST(tanhshrink) {
  sample(distinct({4, 5}));
  rejects("must be a floating-point tensor", randint(0, 3, {3}));
}
SF_OP_TEST(softshrink) {
  sample(distinct({4, 5}), 0.53);
  sample(distinct({5, 4}).transpose(0, 1), 0.0);
  rejects("lambd must not be negative", randn({3}), -0.5);
}
SF_OP_TEST(hardshrink) {
  sample(distinct({4, 5}), 0.53);
  rejects("must be a floating-point tensor", randint(0, 3, {3}));
}
SF_OP_TEST(threshold) {
  sample(distinct({4, 5}), 0.13, 20.0);
  sample(randint(-5, 5, {7}), 1.0, -3.0);
  rejects("must be a tensor", none, 0.0, 0.0);
}
SF_OP_TEST(softmin) {
  sample(randn({4, 5}), 1);
  sample(randn({2, 3, 4}), 0);
  rejects("dim", randn({3}), 2);
}
SF_OP_TEST(rrelu) {
  sample(distinct({4, 5}));
  sample(distinct({5, 4}).transpose(0, 1), 0.1, 0.3, true);
  sample(randn({0, 3}), 0.1, 0.3, true);
  rejects("lower must not be above upper", randn({3}), 0.5, 0.25);
}
SF_OP_TEST(gumbel_softmax) {
  sample(randn({4, 5}));
  sample(randn({4, 5}), 0.5, true, 1e-10, 0).no_grad();  // the value is one-hot, its gradient the softmax's
  rejects("tau must be positive", randn({3}), 0.0);
  rejects("must be a floating-point tensor", randint(0, 3, {3}));
}

namespace {

TEST(activation, hard_limits_have_no_gradient_at_the_bounds) {
  Tensor x = tensor({0, 6, 3, -1, 7}).requires_grad_();
  sum(relu6(x)).backward();
  EXPECT_EQ(x.grad().to_vector(), (std::vector<double>{0, 0, 1, 0, 0}));
}

TEST(activation, logsigmoid_is_exact_far_from_zero) {
  Tensor y = logsigmoid(tensor({-1000, 1000, 50}, kFloat64));
  EXPECT_EQ(y[0].item(), -1000);
  EXPECT_EQ(y[1].item(), 0);
  EXPECT_NEAR(y[2].item() / -std::exp(-50.0), 1, 1e-12);
}

TEST(activation, rrelu_draws_slopes_in_training_and_takes_their_mean_elsewhere) {
  Tensor x = full({500}, -2.0), y = rrelu(x, 0.25, 0.5, true);
  EXPECT_GT(amin(y).item(), -1.0 - 1e-6);
  EXPECT_LT(amax(y).item(), -0.5 + 1e-6);
  EXPECT_GT(amax(y).item() - amin(y).item(), 0.3) << "each element has a slope of its own";
  EXPECT_EQ(rrelu(x, 0.25, 0.5).to_vector(), leaky_relu(x, 0.375).to_vector());
  EXPECT_EQ(rrelu(-x, 0.25, 0.5, true).to_vector(), (-x).to_vector());
}

TEST(activation, gumbel_samples_are_torchs) {
  manual_seed(2);
  std::vector<double> y = gumbel_softmax(arange(0, 5).to(kFloat32) / 2, 0.7).to_vector();
  const std::vector<double> want{0.003671, 0.722893, 0.041917, 0.165692, 0.065828};  // torch 2.15, manual_seed(2)
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(y[i], want[i], 2e-6);
}

TEST(activation, a_hard_gumbel_sample_is_one_hot_and_carries_the_soft_gradient) {
  manual_seed(1);
  Tensor logits = zeros({200, 3}).requires_grad_();
  Tensor y = gumbel_softmax(logits, 0.7, true);
  for (double v : y.detach().to_vector()) EXPECT_TRUE(std::abs(v) < 1e-6 || std::abs(v - 1) < 1e-6) << v;
  for (double v : sum(y, {0}).detach().to_vector()) EXPECT_GT(v, 40);
  sum(y.select(1, 0)).backward();
  manual_seed(1);
  Tensor again = zeros({200, 3}).requires_grad_();
  sum(gumbel_softmax(again, 0.7).select(1, 0)).backward();
  EXPECT_EQ(logits.grad().to_vector(), again.grad().to_vector());
  EXPECT_THROW(gumbel_softmax(logits, 0), ValueError);
}

}  // namespace
}  // namespace sf::test
