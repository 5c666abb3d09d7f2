#include "scaffolding/ops/op_test.h"

namespace sf::test {

SF_OP_TEST(layer_norm) {
  sample(randn({4, 33}), Shape{33}, randn({33}), randn({33}));
  sample(randn({2, 3, 4, 5}), Shape{4, 5}, randn({4, 5}), none, 1e-3);
  sample(randn({7, 6}).transpose(0, 1), Shape{7});
  sample(randn({0, 6}), Shape{6}).no_golden();
  rejects("must be the last sizes", randn({4, 5}), Shape{4});
  rejects("must not be empty", randn({4, 5}), Shape{});
  rejects("weight must have shape", randn({4, 5}), Shape{5}, randn({4}));
  rejects("must be a floating-point tensor", randint(0, 3, {4, 5}), Shape{5});
}
SF_OP_TEST(add_layer_norm) {
  sample(randn({3, 4, 17}), randn({3, 4, 17}), randn({17}), randn({17}));
  sample(randn({5, 8}), randn({5, 8}));
  rejects("residual must have shape", randn({3, 4}), randn({4}));
}
SF_OP_TEST(layer_norm_modulate) {
  sample(randn({2, 5, 12}), randn({2, 12}), randn({2, 12}));
  sample(randn({2, 3, 2, 12}), randn({2, 12}), randn({2, 12}), randn({12}), randn({12}));
  rejects("scale must have shape", randn({2, 5, 12}), randn({12}), randn({2, 12}));
}
SF_OP_TEST(rms_norm) {
  sample(randn({4, 33}), Shape{33}, randn({33}), 1e-6);
  sample(randn({2, 3, 4, 5}), Shape{4, 5}, none, 1e-3);
  rejects("must be the last sizes", randn({4, 5}), Shape{4});
}
SF_OP_TEST(add_rms_norm) { sample(randn({3, 4, 17}), randn({3, 4, 17}), randn({17})); }
SF_OP_TEST(rms_norm_modulate) { sample(randn({2, 5, 12}), randn({2, 12}), randn({2, 12}), randn({12})); }

}  // namespace sf::test
