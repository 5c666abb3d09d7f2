#include "scaffolding/ops/reduce/summaries.h"

#include <cmath>

#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/op_test.h"

namespace sf::test {

namespace {

Tensor with_nan() { return tensor({3, NAN, 1, 2, 5, 4, NAN, NAN, NAN}, kFloat64).reshape({3, 3}); }

}  // namespace

SF_OP_TEST(nansum) {
  sample(randn({3, 4}), 1);
  sample(with_nan(), 1, true).no_grad();  // NaN
  sample(randn({4, 3}).transpose(0, 1));
  sample(randint(0, 5, {3, 4}), 0);
  sample(randn({0}));
  rejects("dim must be in", randn({3}), 1);
}
SF_OP_TEST(nanmean) {
  sample(randn({3, 4}), 1);
  sample(with_nan(), 1, true).no_grad();  // NaN
  sample(randn({4, 3}).transpose(0, 1));
  rejects("dim must be in", randn({3}), 1);
  rejects("floating-point", randint(0, 3, {3}));
}
SF_OP_TEST(aminmax) {
  sample(distinct({3, 4}));
  sample(distinct({3, 4}), 1, true);
  sample(randint(0, 9, {4, 3}).transpose(0, 1), 0);
  sample(with_nan(), 0).no_grad();  // NaN
  rejects("dim must be in", randn({3}), 1);
}
SF_OP_TEST(trapezoid) {
  sample(randn({2, 4}));
  sample(randn({3, 2}), none, 0.5, 0);
  sample(randn({4, 2}), distinct({4}), 1.0, 0);
  sample(randn({3, 2}).transpose(0, 1), distinct({2, 3}));
  sample(randn({3, 0}));
  sample(randint(0, 9, {5}));
  rejects("as many places", randn({3, 5}), randn({4}));
  rejects("dimensions or one", randn({3, 5}), randn({}));
  rejects("must have a dimension", randn({}));
}
SF_OP_TEST(cumulative_trapezoid) {
  sample(randn({3, 5}));
  sample(randn({5, 3}), distinct({5}), 1.0, 0);
  rejects("as many places", randn({3, 5}), randn({4}));
}

}  // namespace sf::test
