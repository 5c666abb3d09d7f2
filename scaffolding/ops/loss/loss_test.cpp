#include "scaffolding/ops/loss/loss.h"

#include <cmath>

#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/op_test.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/softmax/softmax.h"

namespace sf::test {

SF_OP_TEST(cross_entropy) {
  sample(randn({5, 7}), randint(0, 7, {5}));
  sample(randn({5, 40}), randint(0, 40, {5}, kInt32), none, -100, "sum").no_golden();  // torch wants int64
  // none for weight, in torch either
  sample(randn({5, 7}), randint(0, 7, {5}), rand({7}, 0.5, 2), -100, "none").no_grad();
  sample(randn({6, 3}), randint(0, 3, {6}), none, 1, "mean", 0.1);
  sample(randn({2, 7, 3, 2}), randint(0, 7, {2, 3, 2}), none, 2);
  sample(randn({7, 5}).transpose(0, 1), randint(0, 7, {5}), none, -100, "none", 0.3);
  sample(randn({7}), randint(0, 7, {}));
  sample(randn({5, 7}), softmax(randn({5, 7}), 1));
  sample(randn({2, 4, 3}), softmax(randn({2, 4, 3}), 1), none, -100, "sum", 0.2);
  sample(randn({0, 4}), randint(0, 4, {0}), none, -100, "sum");
  rejects("target 7 is not one of 7 classes", randn({2, 7}), full({2}, 7, kInt64));
  rejects("target -1 is not", randn({2, 7}), full({2}, -1, kInt64));
  rejects("must have shape [2]", randn({2, 7}), randint(0, 7, {3}));
  rejects("must have input's shape", randn({2, 7}), randn({2}));
  rejects("weight must have shape", randn({2, 7}), randint(0, 7, {2}), randn({6}));
  rejects("reduction must be", randn({2, 7}), randint(0, 7, {2}), none, -100, "average");
  rejects("label_smoothing must be in", randn({2, 7}), randint(0, 7, {2}), none, -100, "mean", 1.5);
  rejects("0-d", randn({}), randint(0, 7, {}));
  rejects("no classes", randn({2, 0}), randint(0, 7, {2}));
  rejects("ignore_index needs class indices", randn({2, 7}), randn({2, 7}), none, 1);
}
SF_OP_TEST(nll_loss) {
  sample(randn({5, 7}), randint(0, 7, {5}));
  sample(randn({2, 7, 3}), randint(0, 7, {2, 3}), none, 2, "none");
  sample(randn({5, 4}), randint(0, 4, {5}), none, 1, "sum");
  sample(randn({5, 4}), randint(0, 4, {5}), rand({4}), 1).no_grad();
  sample(randn({7}), randint(0, 7, {}));
  rejects("is not one of 7 classes", randn({2, 7}), full({2}, 9, kInt64));
  rejects("no classes", randn({2, 0}), full({2}, -100, kInt64));
  rejects("must hold integers", randn({2, 7}), randn({2}));
}
SF_OP_TEST(mse_loss) {
  sample(randn({4, 5}), randn({4, 5}));
  sample(randn({5, 4}).transpose(0, 1), randn({5}), "sum");
  sample(randn({4, 5}), randn({4, 5}), "none");
  sample(randn({0}), randn({0}), "sum");
  sample(randn({4, 5}), randn({4, 5}), "mean", rand({4, 5}, 0.1, 1)).no_grad();
  rejects("do not broadcast", randn({4}), randn({5}));
  rejects("reduction must be", randn({4}), randn({4}), "batchmean");
  rejects("must be a tensor", randn({4}), none);
}
SF_OP_TEST(l1_loss) {
  sample(distinct({4, 5}), distinct({4, 5}));
  sample(distinct({4, 5}), distinct({5}), "none");
}
SF_OP_TEST(huber_loss) {
  sample(distinct({4, 5}), distinct({4, 5}));
  sample(distinct({4, 5}), distinct({4, 5}), "sum", 0.33);
  rejects("delta must be positive", randn({4}), randn({4}), "mean", 0.0);
}
SF_OP_TEST(smooth_l1_loss) {
  sample(distinct({4, 5}), distinct({4, 5}));
  sample(distinct({4, 5}), distinct({4, 5}), "none", 0.33);
  sample(distinct({4, 5}), distinct({4, 5}), "none", 0.0);
  rejects("beta must not be negative", randn({4}), randn({4}), "mean", -1.0);
}
SF_OP_TEST(binary_cross_entropy_with_logits) {
  sample(distinct({4, 5}), rand({4, 5}));
  sample(distinct({4, 5}), rand({4, 5}), rand({5}), "sum").no_golden();  // torch has no gradient for weight
  sample(distinct({4, 5}), rand({4, 5}), none, "none", rand({5}, 0.5, 2)).no_golden();
  rejects("must have input's shape", randn({4}), randn({1}));
}
SF_OP_TEST(kl_div) {
  sample(randn({4, 5}), rand({4, 5}, 0.1, 1));
  sample(randn({4, 5}), randn({4, 5}), "batchmean", true);
  sample(randn({4, 5}), rand({4, 5}, 0.1, 1), "sum");
  sample(randn({4, 5}), rand({4, 5}, 0.1, 1), "none");
  rejects("batchmean", randn({4}), randn({4}), "average");
  rejects("needs a batch dimension", randn({}), rand({}), "batchmean");
}

namespace {

TEST(loss, cross_entropy_of_large_logits_does_not_overflow) {
  Tensor x = tensor({1000, 0, -1000}).reshape({1, 3}), t = tensor(std::vector<int64_t>{1}, {1});
  EXPECT_EQ(cross_entropy(x, t).item(), 1000);
  Tensor y = x.clone().requires_grad_();
  cross_entropy(y, t).backward();
  EXPECT_EQ(y.grad().to_vector(), (std::vector<double>{1, -1, 0}));
}

TEST(loss, a_batch_of_ignored_targets_has_no_mean_but_a_sum) {
  Tensor x = zeros({2, 3}).requires_grad_(), t = full({2}, -100, kInt64);
  EXPECT_TRUE(std::isnan(cross_entropy(x, t).item()));
  Tensor s = cross_entropy(x, t, {}, -100, "sum");
  EXPECT_EQ(s.item(), 0);
  s.backward();
  EXPECT_EQ(x.grad().to_vector(), std::vector<double>(6, 0));
}

TEST(loss, logits_far_from_zero_give_exact_binary_cross_entropy) {
  Tensor x = tensor({200, -200, 30}, kFloat64), z = tensor({1, 0, 1}, kFloat64);
  EXPECT_NEAR(binary_cross_entropy_with_logits(x, z, {}, "sum").item(), std::log1p(std::exp(-30.0)), 1e-20);
  EXPECT_NEAR(binary_cross_entropy_with_logits(x, z, {}, "sum", ones({1}, kFloat64)).item(),
              std::log1p(std::exp(-30.0)), 1e-20);
}

TEST(loss, kl_div_of_zero_probability_is_zero) {
  EXPECT_EQ(kl_div(tensor({-1, -2}), tensor({0, 1}), "none").to_vector(), (std::vector<double>{0, 2}));
}

}  // namespace
}  // namespace sf::test
