#include "scaffolding/ops/op_test.h"

namespace sf::test {

SF_OP_TEST(clone) {
  sample(randn({2, 3}));
  sample(randn({2, 3, 4}).transpose(0, 2));
  sample(randn({3, 1}).expand({3, 4}));
  sample(randn({0}));
  sample(randint(0, 9, {3}));
  rejects("input must be a tensor", Tensor());
}
SF_OP_TEST(contiguous) {
  sample(randn({2, 3}));
  sample(randn({2, 3, 4}).transpose(0, 2));
  sample(boolean({3, 1}).expand({3, 4}));
  rejects("input must be a tensor", Tensor());
}

}  // namespace sf::test
