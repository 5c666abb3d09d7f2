#include "scaffolding/ops/op_test.h"

namespace sf::test {

SF_OP_TEST(glu) {
  sample(randn({5, 34}));
  sample(randn({5, 34}), "gelu_tanh", true);
  sample(distinct({3, 8}), "relu");
  rejects("must be even", randn({3, 5}));
  rejects("activation must be", randn({3, 4}), "swish");
}
SF_OP_TEST(geglu) {
  sample(randn({2, 3, 34}));
  sample(randn({8, 5}).transpose(0, 1), true);
}
SF_OP_TEST(swiglu) { sample(randn({2, 3, 34})); }

}  // namespace sf::test
