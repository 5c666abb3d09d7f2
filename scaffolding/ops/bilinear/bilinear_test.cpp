#include "scaffolding/ops/bilinear/bilinear.h"

#include "scaffolding/ops/op_test.h"

namespace sf::test {

SF_OP_TEST(bilinear) {
  sample(randn({4, 3}), randn({4, 5}), randn({2, 3, 5}), randn({2}));
  sample(randn({2, 4, 3}), randn({2, 4, 5}), randn({2, 3, 5}));
  sample(randn({3}), randn({5}), randn({2, 3, 5}), randn({2}));
  sample(randn({0, 3}), randn({0, 5}), randn({2, 3, 5}));
  rejects("weight must be [out, in1, in2]", randn({4, 3}), randn({4, 5}), randn({3, 5}));
  rejects("must agree in dimension 0", randn({4, 3}), randn({3, 5}), randn({2, 3, 5}));
  rejects("the last sizes must be those of weight", randn({4, 3}), randn({4, 4}), randn({2, 3, 5}));
  rejects("bias must have shape", randn({4, 3}), randn({4, 5}), randn({2, 3, 5}), randn({3}));
  rejects("same number of dimensions", randn({3}), randn({4, 5}), randn({2, 3, 5}));
}

}  // namespace sf::test
