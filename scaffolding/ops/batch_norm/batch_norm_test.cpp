#include "scaffolding/ops/batch_norm/batch_norm.h"

#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/op_test.h"

namespace sf::test {

SF_OP_TEST(batch_norm) {
  sample(randn({3, 4, 5}), none, none, randn({4}), randn({4}), true);
  sample(to_channels_last(randn({2, 4, 5, 3})), none, none, randn({4}), randn({4}), true);
  sample(randn({3, 4}), none, none, none, none, true);
  rejects("are needed outside training", randn({3, 4, 5}), none, none);
  rejects("more than one value per channel", randn({1, 4}), none, none, none, none, true);
  rejects("running_mean must have shape", randn({3, 4}), randn({3}), randn({4}));
}
SF_OP_TEST(instance_norm) {
  sample(randn({2, 3, 4, 5}), none, none, randn({3}), randn({3}));
  rejects("input must be [N, C, *]", randn({2, 3}));
}

TEST(batch_norm, updates_running_statistics_with_the_unbiased_variance) {
  Tensor x = tensor(std::vector<double>{1, 2, 3, 6}, {4, 1}), mean = zeros({1}, kFloat64), var = ones({1}, kFloat64);
  batch_norm(x, mean, var, {}, {}, true, 0.1);
  EXPECT_NEAR(mean.item(), 0.3, 1e-12);
  EXPECT_NEAR(var.item(), 0.9 + 0.1 * 14.0 / 3, 1e-12);
}

TEST(batch_norm, uses_running_statistics_outside_training) {
  Tensor x = tensor(std::vector<double>{1, 2, 3, 6}, {4, 1}), mean = full({1}, 2.0, kFloat64),
         var = full({1}, 4.0, kFloat64);
  auto y = batch_norm(x, mean, var, {}, {}, false, 0.1, 0).to_vector();
  EXPECT_NEAR(y[0], -0.5, 1e-6);
  EXPECT_NEAR(y[3], 2.0, 1e-6);
}

}  // namespace sf::test
