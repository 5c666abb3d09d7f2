#include "scaffolding/ops/op_test.h"

namespace sf::test {

SF_OP_TEST(linear_act) {
  sample(randn({4, 5, 17}), randn({9, 17}), randn({9}));
  sample(randn({6, 17}), randn({33, 17}), none, "silu");
  sample(randn({6, 17}), randn({33, 17}), randn({33}), "gelu_tanh");
  sample(randn({6, 17}), randn({33, 17}), randn({33}), "quick_gelu");
  rejects("activation must be", randn({4, 5}), randn({3, 5}), none, "tanh");
  rejects("must be weight's second", randn({4, 5}), randn({3, 6}));
}
SF_OP_TEST(linear_geglu) {
  sample(randn({2, 3, 8}), randn({20, 8}), randn({20}));
  // rows enough for the fused kernel, columns that fill no vector
  sample(randn({40, 24}), randn({70, 24}), randn({70}));
  sample(randn({8, 33}).transpose(0, 1), randn({64, 8}), none);
  // memory that the kernel cannot read as rows: copies, which must outlive it
  sample(randn({2, 24, 30}).transpose(1, 2), randn({64, 24}), randn({64}));
  rejects("even number of rows", randn({2, 3}), randn({5, 3}));
  rejects("must be weight's second", randn({4, 5}), randn({4, 6}));
}
SF_OP_TEST(linear_swiglu) {
  sample(randn({2, 3, 8}), randn({20, 8}), randn({20}));
  sample(randn({5, 8}), randn({6, 8}), none, true);
  sample(randn({4, 5, 31}), randn({34, 31}), randn({34}), true);
}

}  // namespace sf::test
