#include "scaffolding/ops/op_test.h"

namespace sf::test {

SF_OP_TEST(matmul) {
  sample(randn({5, 7}), randn({7, 3}));
  sample(randn({7}), randn({7}));
  sample(randn({7}), randn({7, 4}));
  sample(randn({2, 5, 7}), randn({7}));
  sample(randn({2, 5, 7}), randn({7, 6}));
  sample(randn({2, 1, 5, 7}), randn({3, 7, 4}));
  sample(randn({7, 33}).transpose(0, 1), randn({20, 7}).transpose(0, 1));
  sample(randn({0, 7}), randn({7, 3}));
  sample(randn({4, 0}), randn({0, 3})).no_golden();
  sample(randint(-5, 5, {4, 6}), randint(-5, 5, {6, 2}));
  rejects("equal inner sizes", randn({2, 3}), randn({4, 2}));
  rejects("one dtype", randn({2, 3}), randint(0, 3, {3, 2}));
  rejects("at least one dimension", randn({}), randn({3}));
  rejects("do not broadcast", randn({2, 3, 4}), randn({3, 4, 5}));
}
SF_OP_TEST(mm) {
  sample(randn({65, 17}), randn({17, 70}));
  rejects("two matrices", randn({3}), randn({3, 2}));
}
SF_OP_TEST(bmm) {
  sample(randn({3, 4, 5}), randn({3, 6, 5}).transpose(1, 2));
  rejects("needs [B, M, K]", randn({3, 4, 5}), randn({2, 5, 6}));
}
SF_OP_TEST(mv) {
  sample(randn({9, 5}), randn({5}));
  rejects("a matrix and a vector", randn({5}), randn({5}));
}
SF_OP_TEST(dot) {
  sample(randn({19}), randn({19}));
  rejects("two vectors", randn({2, 2}), randn({2}));
}
SF_OP_TEST(outer) {
  sample(randn({4}), randn({6}));
  rejects("two vectors", randn({2, 2}), randn({2}));
}
SF_OP_TEST(addmm) {
  sample(randn({5}), randn({4, 3}), randn({3, 5}));
  sample(randn({4, 5}), randn({4, 3}), randn({3, 5}), 0.5, -2.0);
  sample(randn({4, 5}), randn({4, 3}), randn({3, 5}), 0, 1);
  rejects("does not broadcast", randn({3, 4, 5}), randn({4, 3}), randn({3, 5}));
}
SF_OP_TEST(baddbmm) { sample(randn({2, 1, 5}), randn({2, 4, 3}), randn({2, 3, 5}), 2, 0.5); }
SF_OP_TEST(linear) {
  sample(randn({4, 9, 17}), randn({21, 17}), randn({21}));
  sample(randn({17}), randn({21, 17}));
  sample(randn({6, 5}).transpose(0, 1), randn({3, 6}), randn({3}));
  rejects("must be weight's second", randn({4, 5}), randn({3, 6}));
  rejects("bias must have shape", randn({4, 5}), randn({3, 5}), randn({5}));
}

}  // namespace sf::test
