#include "scaffolding/ops/op_test.h"

namespace sf::test {

SF_OP_TEST(softmax) {
  sample(randn({3, 5}), -1);
  sample(randn({3, 37}), 1);
  sample(randn({3, 5, 2}), 0);
  sample(randn({5, 3, 2}).transpose(0, 1), 1);
  sample(randn({0, 4}), 1);
  sample(randn({4, 0}), 1);
  sample(randn({}), 0);
  sample(randn({3, 5}), -1, kFloat64).no_low_precision();
  rejects("must be a floating-point tensor", randint(0, 5, {3}), 0);
  rejects("dim must be in", randn({3}), 1);
  rejects("must be a tensor", none, 0);
}
SF_OP_TEST(log_softmax) {
  sample(randn({3, 5}), -1);
  sample(randn({3, 37}), 1);
  sample(randn({3, 5, 2}), 0);
  sample(randn({5, 3, 2}).transpose(0, 1), 1);
  sample(randn({4, 0}), 1);
  sample(randn({}), 0);
  rejects("must be a floating-point tensor", randint(0, 5, {3}), 0);
  rejects("dim must be in", randn({3}), -2);
}

}  // namespace sf::test
