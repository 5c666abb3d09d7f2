#include "scaffolding/ops/op_test.h"

namespace sf::test {

SF_OP_TEST(linear_add) {
  sample(randn({2, 3, 8}), randn({5, 8}), randn({5}), randn({2, 3, 5}));
  sample(randn({4, 16}), randn({24, 16}), none, randn({4, 24}));
  sample(randn({16, 6}).transpose(0, 1), randn({8, 16}), randn({8}), randn({8, 6}).transpose(0, 1));
  sample(randn({7}), randn({3, 7}), randn({3}), randn({3}));
  // memory that the kernel cannot read as rows: copies, which must outlive it
  sample(randn({2, 24, 30}).transpose(1, 2), randn({24, 24}), randn({48}).narrow(0, 0, 24),
         randn({2, 24, 30}).transpose(1, 2));
  sample(randn({0, 7}), randn({3, 7}), randn({3}), randn({0, 3}));
  rejects("must be weight's second", randn({4, 5}), randn({3, 6}), none, randn({4, 3}));
  rejects("residual must have shape", randn({4, 5}), randn({3, 5}), none, randn({4, 5}));
  rejects("residual must have shape", randn({4, 5}), randn({3, 5}), none, randn({3}));
  rejects("bias must have shape", randn({4, 5}), randn({3, 5}), randn({5}), randn({4, 3}));
}

}  // namespace sf::test
