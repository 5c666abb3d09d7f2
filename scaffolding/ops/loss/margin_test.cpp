#include <cmath>

#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/loss/loss.h"
#include "scaffolding/ops/op_test.h"
#include "scaffolding/ops/pointwise/pointwise.h"

namespace sf::test {

namespace {
Tensor signs(const Tensor& bits) { return bits * 2 - 1; }  // 0 and 1 to -1 and 1
}  // namespace

SF_OP_TEST(binary_cross_entropy) {
  sample(rand({4, 5}, 0.05, 0.95), rand({4, 5})).no_low_precision();  // 1 - p has few digits in 16 bits
  // torch has no gradient for weight
  sample(rand({4, 5}, 0.05, 0.95), rand({4, 5}), rand({5}), "sum").no_golden().no_low_precision();
  sample(rand({5, 4}, 0.05, 0.95).transpose(0, 1), rand({4, 5}), none, "none").no_low_precision();
  rejects("must have input's shape", rand({4}), rand({1}));
  rejects("between 0 and 1", full({2}, 1.5, kFloat64), zeros({2}, kFloat64));
  rejects("reduction must be", rand({4}), rand({4}), none, "batchmean");
}
SF_OP_TEST(multilabel_soft_margin_loss) {
  sample(distinct({4, 5}), randint(0, 2, {4, 5}).to(kFloat64));
  sample(distinct({4, 5}), rand({4, 5}), none, "none");
  sample(distinct({5}), rand({5}), rand({5}), "sum").no_golden();  // torch has no gradient for weight
  rejects("one shape [..., C]", randn({4, 5}), randn({4}));
}
SF_OP_TEST(soft_margin_loss) {
  sample(distinct({4, 5}), signs(randint(0, 2, {4, 5})));
  sample(distinct({4, 5}), signs(randint(0, 2, {4, 5})), "none");
  rejects("reduction must be", randn({4}), randn({4}), "all");
}
SF_OP_TEST(hinge_embedding_loss) {
  sample(distinct({4, 5}), signs(randint(0, 2, {4, 5})));
  sample(distinct({4, 5}), signs(randint(0, 2, {4, 5})), 0.33, "sum");
  rejects("reduction must be", randn({4}), randn({4}), 1.0, "all");
}
SF_OP_TEST(margin_ranking_loss) {
  sample(distinct({6}), distinct({6}), signs(randint(0, 2, {6})));
  sample(distinct({4, 5}), distinct({4, 5}), signs(randint(0, 2, {4, 5})), 0.533, "none");
  rejects("same number of dimensions", randn({4}), randn({4, 1}), randn({4}));
}
SF_OP_TEST(cosine_embedding_loss) {
  sample(randn({6, 5}), randn({6, 5}), signs(randint(0, 2, {6})));
  sample(randn({6, 5}), randn({6, 5}), signs(randint(0, 2, {6})), 0.1, "none");
  sample(randn({5}), randn({5}), full({}, 1, kInt64), 0.0, "sum");
  rejects("needs input1 and input2 [N, D]", randn({4, 5}), randn({4, 5}), randint(0, 2, {4, 5}));
  rejects("target must have shape [4]", randn({4, 5}), randn({4, 5}), randint(0, 2, {3}));
}
SF_OP_TEST(triplet_margin_loss) {
  sample(randn({4, 5}), randn({4, 5}), randn({4, 5}));
  sample(randn({4, 5}), randn({4, 5}), randn({4, 5}), 3.0, 1.0, 1e-6, true, "none");
  rejects("margin must be positive", randn({4, 5}), randn({4, 5}), randn({4, 5}), 0.0);
  rejects("same number of dimensions", randn({4, 5}), randn({5}), randn({4, 5}));
}
SF_OP_TEST(poisson_nll_loss) {
  // a target of 1 is at the edge of Stirling's formula
  sample(randn({4, 5}), randint(0, 9, {4, 5}).to(kFloat64)).no_grad();
  sample(randn({4, 5}), rand({4, 5}, 1.5, 9), true, true, 1e-8, "sum");
  sample(rand({4, 5}, 0.2, 3), rand({4, 5}, 0, 0.9), false, true, 1e-8, "none");
  rejects("reduction must be", randn({4}), randn({4}), true, false, 1e-8, "all");
}
SF_OP_TEST(gaussian_nll_loss) {
  sample(randn({4, 5}), randn({4, 5}), rand({4, 5}, 0.3, 2));
  sample(randn({4, 5}), randn({4, 5}), rand({4}, 0.3, 2), true, 1e-6, "none");
  sample(randn({4, 5}), randn({4, 5}), rand({4, 1}, 0.3, 2), false, 1e-6, "sum");
  rejects("var must have input's shape", randn({4, 5}), randn({4, 5}), rand({5}));
  rejects("var must not be negative", randn({4}), randn({4}), full({4}, -1.0, kFloat64));
}

namespace {

TEST(loss, certain_probabilities_have_finite_losses_and_gradients) {
  Tensor p = tensor({0, 1, 0, 1}).requires_grad_(), z = tensor({0, 1, 1, 0});
  Tensor y = binary_cross_entropy(p, z, {}, "none");
  EXPECT_EQ(y.detach().to_vector(), (std::vector<double>{0, 0, 100, 100}));
  y.backward(ones({4}));
  std::vector<double> g = p.grad().to_vector();
  EXPECT_EQ(g[0], 0);
  EXPECT_NEAR(g[2], -1e12, 1e6);
}

TEST(loss, weights_of_elements_are_divided_by_in_means_as_torch_does) {
  Tensor x = tensor({1, 2, 4}), t = tensor({0, 0, 0}), w = tensor({1, 0, 3});
  EXPECT_FLOAT_EQ(float(mse_loss(x, t, "mean", w).item()), 49.f / 4);
  EXPECT_FLOAT_EQ(float(l1_loss(x, t, "mean", w).item()), 13.f / 4);
  EXPECT_FLOAT_EQ(float(l1_loss(x, t, "sum", w).item()), 13.f);
  EXPECT_FLOAT_EQ(float(huber_loss(x, t, "mean", 1, w).item()), (0.5f + 3 * 3.5f) / 3);
  EXPECT_THROW(mse_loss(x, t, "mean", tensor({1})), ValueError);
}

}  // namespace
}  // namespace sf::test
