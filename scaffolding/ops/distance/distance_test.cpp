#include "scaffolding/ops/distance/distance.h"

#include "scaffolding/ops/op_test.h"

namespace sf::test {

SF_OP_TEST(cosine_similarity) {
  sample(randn({4, 5}), randn({4, 5}));
  sample(randn({3, 1, 5}), randn({4, 5}), 2);
  sample(randn({5, 4}).transpose(0, 1), randn({4, 5}), 0, 1e-3);
  rejects("do not broadcast", randn({4, 5}), randn({4, 6}));
  rejects("dim", randn({4}), randn({4}));
  rejects("must be a tensor", randn({4}), none);
}
SF_OP_TEST(pairwise_distance) {
  sample(randn({4, 5}), randn({4, 5}));
  sample(randn({4, 5}), randn({5}), 1.0, 1e-6, true);
  sample(randn({5}), randn({5}), 3.0);
  rejects("do not broadcast", randn({4, 5}), randn({4, 6}));
  rejects("must have a dimension", randn({}), randn({}));
}
SF_OP_TEST(normalize) {
  sample(randn({4, 5}));
  sample(randn({2, 3, 4}), 1.0, 2);
  sample(randn({4, 5}).transpose(0, 1), 3.0, 0, 1e-3);
  rejects("dim", randn({4}));
  rejects("must be a floating-point tensor", randint(0, 3, {3, 3}));
}

}  // namespace sf::test
