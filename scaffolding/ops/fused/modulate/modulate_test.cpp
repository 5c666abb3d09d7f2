#include "scaffolding/ops/op_test.h"

namespace sf::test {

SF_OP_TEST(modulate) {
  sample(randn({2, 5, 19}), randn({2, 19}), randn({2, 19}));
  sample(randn({3, 8}), randn({3, 8}), randn({3, 8}));
  sample(randn({2, 19, 4}).transpose(1, 2), randn({2, 19}), randn({2, 19}));
  rejects("scale must have shape", randn({2, 5, 19}), randn({19}), randn({2, 19}));
  rejects("must be [B, ..., C]", randn({5}), randn({5}), randn({5}));
  rejects("input's dtype", randn({2, 5}), randint(0, 2, {2, 5}), randn({2, 5}));
}
SF_OP_TEST(gated_residual) {
  sample(randn({2, 5, 19}), randn({2, 19}), randn({2, 5, 19}));
  sample(randn({2, 3, 2, 16}), randn({2, 16}), randn({2, 3, 2, 16}));
  rejects("residual must have shape", randn({2, 4, 19}), randn({2, 19}), randn({2, 5, 19}));
}

}  // namespace sf::test
