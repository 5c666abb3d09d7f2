#include "scaffolding/ops/op_test.h"

namespace sf::test {

SF_OP_TEST(linear_act) {
  sample(randn({4, 5, 17}), randn({9, 17}), randn({9}));
  sample(randn({6, 17}), randn({33, 17}), none, "silu");
  sample(randn({6, 17}), randn({33, 17}), randn({33}), "gelu_tanh");
  rejects("activation must be", randn({4, 5}), randn({3, 5}), none, "tanh");
  rejects("must be weight's second", randn({4, 5}), randn({3, 6}));
}
SF_OP_TEST(linear_geglu) { sample(randn({2, 3, 8}), randn({20, 8}), randn({20})); }
SF_OP_TEST(linear_swiglu) {
  sample(randn({2, 3, 8}), randn({20, 8}), randn({20}));
  sample(randn({5, 8}), randn({6, 8}), none, true);
}

}  // namespace sf::test
