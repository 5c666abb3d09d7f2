#include "scaffolding/ops/op_test.h"

namespace sf::test {

SF_OP_TEST(local_response_norm) {
  sample(randn({2, 5, 3}), 3, 0.5);
  sample(randn({2, 4, 3, 2}), 2, 0.3, 0.5, 2.0);
  sample(randn({3, 5, 2, 2}).transpose(0, 1), 7, 0.9, 1.5);
  sample(randn({1, 3, 2, 2, 2}), 1, 0.5);
  sample(randn({0, 3, 2}), 2);
  rejects("at least 3 dimensions", randn({2, 5}), 3);
  rejects("size must be positive", randn({2, 5, 3}), 0);
}

}  // namespace sf::test
