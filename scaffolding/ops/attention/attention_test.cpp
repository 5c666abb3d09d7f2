#include "scaffolding/ops/op_test.h"

namespace sf::test {

SF_OP_TEST(scaled_dot_product_attention) {
  sample(randn({2, 3, 5, 8}), randn({2, 3, 7, 8}), randn({2, 3, 7, 8}));
  sample(randn({2, 9, 3, 8}).transpose(1, 2), randn({2, 9, 3, 8}).transpose(1, 2), randn({2, 9, 3, 8}).transpose(1, 2), none, 0.0, true);
  sample(randn({1, 4, 6, 5}), randn({1, 2, 6, 5}), randn({1, 2, 6, 3}), none, 0.0, false, 0.7, true);
  sample(randn({2, 2, 5, 4}), randn({2, 2, 6, 4}), randn({2, 2, 6, 4}), randn({5, 6}));
  sample(randn({2, 2, 5, 4}), randn({2, 2, 6, 4}), randn({2, 2, 6, 4}), boolean({2, 1, 5, 6}));
  sample(randn({5, 8}), randn({6, 8}), randn({6, 8}));
  sample(randn({3, 5, 8}), randn({3, 6, 8}), randn({3, 6, 8}));
  sample(randn({1, 1, 40, 16}), randn({1, 1, 150, 16}), randn({1, 1, 150, 16})).no_grad();
  rejects("same last size", randn({1, 2, 3, 4}), randn({1, 2, 3, 5}), randn({1, 2, 3, 5}));
  rejects("same length", randn({1, 2, 3, 4}), randn({1, 2, 3, 4}), randn({1, 2, 5, 4}));
  rejects("enable_gqa", randn({1, 4, 3, 4}), randn({1, 2, 3, 4}), randn({1, 2, 3, 4}));
  rejects("not both", randn({1, 2, 3, 4}), randn({1, 2, 3, 4}), randn({1, 2, 3, 4}), randn({3, 3}), 0.0, true);
  rejects("must be bool or floating", randn({1, 2, 3, 4}), randn({1, 2, 3, 4}), randn({1, 2, 3, 4}), randint(0, 2, {3, 3}));
}

}  // namespace sf::test
