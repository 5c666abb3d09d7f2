#include "scaffolding/ops/op_test.h"

namespace sf::test {

SF_OP_TEST(linear_lora) {
  sample(randn({2, 3, 8}), randn({5, 8}), randn({5}), randn({2, 8}), randn({5, 2}));
  sample(randn({4, 16}), randn({24, 16}), none, randn({4, 16}), randn({24, 4}), 0.5);
  sample(randn({16, 6}).transpose(0, 1), randn({8, 16}), randn({8}), randn({3, 16}), randn({8, 3}), -1.25);
  sample(randn({7}), randn({3, 7}), randn({3}), randn({1, 7}), randn({3, 1}), 2);
  sample(randn({0, 7}), randn({3, 7}), randn({3}), randn({2, 7}), randn({3, 2}));
  sample(randn({3, 70}), randn({130, 70}), randn({130}), randn({16, 70}), randn({130, 16}), 0.25);
  rejects("must be weight's second", randn({4, 5}), randn({3, 6}), none, randn({2, 6}), randn({3, 2}));
  rejects("down must be [R, 5]", randn({4, 5}), randn({3, 5}), none, randn({2, 6}), randn({3, 2}));
  rejects("up must have shape", randn({4, 5}), randn({3, 5}), none, randn({2, 5}), randn({3, 3}));
  rejects("bias must have shape", randn({4, 5}), randn({3, 5}), randn({5}), randn({2, 5}), randn({3, 2}));
}

}  // namespace sf::test
