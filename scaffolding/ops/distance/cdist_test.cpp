#include "scaffolding/ops/distance/cdist.h"

#include <limits>

#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/op_test.h"

namespace sf::test {

SF_OP_TEST(cdist) {
  for (double p : {2.0, 1.0, 1.5, std::numeric_limits<double>::infinity()}) sample(randn({4, 3}), randn({3, 3}), p);
  sample(randn({3, 4}).transpose(0, 1), randn({5, 3}), 0.0);
  sample(randn({2, 1, 2, 2}), randn({2, 3, 2}));
  sample(randn({2, 3, 2}), randn({1, 2, 2}), 2.0, "use_mm_for_euclid_dist");
  sample(randn({26, 1}), randn({2, 1}), 2.0, "donot_use_mm_for_euclid_dist");
  sample(randn({0, 3}), randn({4, 3}));
  sample(randn({4, 0}), randn({2, 0})).no_grad();  // of nothing
  rejects("must have the same number of columns", randn({4, 3}), randn({5, 2}));
  rejects("must have at least two dimensions", randn({3}), randn({5, 3}));
  rejects("p must not be negative", randn({4, 3}), randn({5, 3}), -1.0);
  rejects("compute_mode must be", randn({4, 3}), randn({5, 3}), 2.0, "fast");
  rejects("do not broadcast", randn({2, 4, 3}), randn({3, 5, 3}));
  rejects("floating-point", randint(0, 3, {4, 3}), randn({5, 3}));
}
SF_OP_TEST(pdist) {
  for (double p : {2.0, 1.0, std::numeric_limits<double>::infinity()}) sample(randn({5, 3}), p);
  sample(randn({3, 4}).transpose(0, 1), 3.0);
  sample(randn({1, 3}));
  rejects("input must be [N, M]", randn({3}));
  rejects("p must not be negative", randn({4, 3}), -1.0);
}

namespace {

TEST(cdist, equal_rows_have_no_gradient_rather_than_nan) {
  Tensor x = ones({30, 2}).requires_grad_(), y = ones({2, 2});
  cdist(x, y).sum().backward();
  EXPECT_EQ(x.grad().to_vector(), std::vector<double>(60, 0.0));
}

}  // namespace
}  // namespace sf::test
