#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/op_test.h"

namespace sf::test {

SF_OP_TEST(group_norm) {
  sample(randn({2, 6, 4, 4}), 3, randn({6}), randn({6}), 1e-5);
  sample(randn({2, 6, 4, 4}).transpose(2, 3), 3);
  sample(to_channels_last(randn({2, 8, 5, 3})), 2, randn({8}), randn({8}));
  sample(randn({3, 6}), 2);
  sample(randn({1, 4, 2, 3, 3}), 4, randn({4}));
  sample(randn({0, 4, 3}), 2).no_golden();
  rejects("num_groups must divide", randn({2, 6, 4}), 4);
  rejects("num_groups must divide", randn({2, 6, 4}), 0);
  rejects("input must be [N, C, ...]", randn({6}), 2);
  rejects("weight must have shape", randn({2, 6, 4}), 2, randn({4}));
  rejects("must be a floating-point tensor", randint(0, 3, {2, 6, 4}), 2);
}
SF_OP_TEST(group_norm_silu) {
  sample(randn({2, 6, 4, 4}), 3, randn({6}), randn({6}));
  sample(to_channels_last(randn({2, 32, 5, 3})), 8, randn({32}), randn({32}), 1e-6);
}

}  // namespace sf::test
