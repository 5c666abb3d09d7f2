#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/op_test.h"

namespace sf::test {

SF_OP_TEST(multi_margin_loss) {
  // near a margin 16 bits fall on either side of it
  sample(randn({4, 5}), randint(0, 5, {4})).no_low_precision();
  sample(randn({4, 5}), randint(0, 5, {4}), 2, 0.53, none, "none");
  // torch has no gradient for weight
  sample(randn({5, 4}).transpose(0, 1), randint(0, 5, {4}), 1, 1.0, rand({5}), "sum").no_golden().no_low_precision();
  sample(randn({5}), randint(0, 5, {}), 2);
  sample(randn({0, 3}), randint(0, 3, {0}), 1, 1.0, none, "sum");
  rejects("p must be 1 or 2", randn({4, 5}), randint(0, 5, {4}), 3);
  rejects("target must have shape", randn({4, 5}), randint(0, 5, {5}));
  rejects("target must be int64", randn({4, 5}), randn({4}));
  rejects("must be [N, C] or [C]", randn({2, 4, 5}), randint(0, 5, {2}));
  rejects("must have classes", randn({4, 0}), randint(0, 1, {4}));
  rejects("weight must have shape", randn({4, 5}), randint(0, 5, {4}), 1, 1.0, randn({4}));
}
SF_OP_TEST(multilabel_margin_loss) {
  Tensor labels = tensor(std::vector<int64_t>{3, 0, -1, 1, 1, -1, 2, 0, 0, 1, 2, 3}, {3, 4}, kInt64);
  sample(randn({3, 4}), labels).no_low_precision();
  sample(randn({4, 3}).transpose(0, 1), labels, "none").no_low_precision();
  sample(randn({4}), labels.select(0, 0), "sum").no_low_precision();
  sample(randn({0, 3}), randint(0, 3, {0, 3}), "sum");
  rejects("must have input's shape", randn({3, 4}), randint(0, 3, {3}));
  rejects("target must be int64", randn({3, 4}), randn({3, 4}));
}

}  // namespace sf::test
