#include "scaffolding/ops/op_test.h"

namespace sf::test {

SF_OP_TEST(linear_lora) {
  sample(randn({2, 3, 8}), randn({5, 8}), randn({5}), randn({2, 8}), randn({5, 2}));
  sample(randn({4, 16}), randn({24, 16}), none, randn({4, 16}), randn({24, 4}), 0.5);
  sample(randn({16, 6}).transpose(0, 1), randn({8, 16}), randn({8}), randn({3, 16}), randn({8, 3}), -1.25);
  sample(randn({7}), randn({3, 7}), randn({3}), randn({1, 7}), randn({3, 1}), 2);
  // memory that the kernel cannot read as rows: copies, which must outlive it
  sample(randn({2, 24, 30}).transpose(1, 2), randn({24, 24}).transpose(0, 1), randn({24}), randn({4, 24}),
         randn({4, 24}).transpose(0, 1), 0.5);
  sample(randn({0, 7}), randn({3, 7}), randn({3}), randn({2, 7}), randn({3, 2}));
  sample(randn({3, 70}), randn({130, 70}), randn({130}), randn({16, 70}), randn({130, 16}), 0.25);
  // the joined kernel, and sums of 16-bit floats that are never stored
  sample(randn({40, 24}), randn({70, 24}), randn({70}), randn({4, 24}), randn({70, 4}), 0.5, "geglu");
  sample(randn({3, 8}), randn({12, 8}), none, randn({2, 8}), randn({12, 2}), 1, "swiglu");
  sample(randn({20, 31}), randn({34, 31}), randn({34}), randn({3, 31}), randn({34, 3}), 1, "geglu");
  sample(randn({520, 18}), randn({34, 18}), randn({34}), randn({3, 18}), randn({34, 3}), 0.5);
  sample(randn({2, 3, 8}), randn({5, 8}), randn({5}), randn({2, 8}), randn({5, 2}), 1, "none", randn({2, 3, 5}));
  sample(randn({6, 8}), randn({4, 8}), none, randn({2, 8}), randn({4, 2}), 1, "geglu", randn({6, 2}));
  rejects("must be weight's second", randn({4, 5}), randn({3, 6}), none, randn({2, 6}), randn({3, 2}));
  rejects("down must be [R, 5]", randn({4, 5}), randn({3, 5}), none, randn({2, 6}), randn({3, 2}));
  rejects("up must have shape", randn({4, 5}), randn({3, 5}), none, randn({2, 5}), randn({3, 3}));
  rejects("bias must have shape", randn({4, 5}), randn({3, 5}), randn({5}), randn({2, 5}), randn({3, 2}));
  rejects("activation must be none, geglu or swiglu", randn({4, 5}), randn({4, 5}), none, randn({2, 5}), randn({4, 2}),
          1, "gelu");
  rejects("even number of rows", randn({4, 5}), randn({3, 5}), none, randn({2, 5}), randn({3, 2}), 1, "geglu");
  rejects("residual must have shape", randn({4, 5}), randn({3, 5}), none, randn({2, 5}), randn({3, 2}), 1, "none",
          randn({4, 5}));
}

}  // namespace sf::test
