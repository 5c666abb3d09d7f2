#include "scaffolding/ops/op_test.h"

namespace sf::test {

SF_OP_TEST(add) {
  sample(randn({2, 3, 4}), randn({2, 3, 4}));
  sample(randn({2, 3, 4}), randn({3, 1}), 2);
  sample(randn({4, 3}).transpose(0, 1), randn({3, 4}));
  sample(randn({}), randn({5}));
  sample(randn({0, 3}), randn({3}));
  rejects("do not broadcast", randn({2, 3}), randn({4}));
}
SF_OP_TEST(sub) { sample(randn({33}), randn({33}), 0.5); }
SF_OP_TEST(mul) {
  sample(randn({2, 70}), randn({2, 1}));
  sample(randn({5, 7}).transpose(0, 1), randn({7, 5}));
}
SF_OP_TEST(div) {
  sample(randn({6, 5}), rand({5}, 0.5, 2));
  rejects("rounding_mode", randn({2}), randn({2}), "up");
}
SF_OP_TEST(pow) {
  sample(rand({40}, 0.3, 3), rand({40}, -2, 2));
  sample(rand({8}, 0.3, 3), 2);
}
SF_OP_TEST(maximum) { sample(distinct({6, 8}), distinct({6, 8}) ); }
SF_OP_TEST(minimum) { sample(distinct({6, 8}), distinct({8})); }
SF_OP_TEST(atan2) { sample(rand({20}, 0.5, 2), rand({20}, -2, -0.5)); }
SF_OP_TEST(neg) { sample(randn({5, 9})); }
SF_OP_TEST(abs) { sample(distinct({37})); }
SF_OP_TEST(sign) { sample(distinct({37})); }
SF_OP_TEST(exp) { sample(randn({5, 9})); }
SF_OP_TEST(log) { sample(rand({37}, 0.1, 5)); }
SF_OP_TEST(tanh) { sample(randn({5, 9}).transpose(0, 1)); }
SF_OP_TEST(silu) { sample(randn({5, 33})); }
SF_OP_TEST(gelu) {
  sample(randn({5, 33}));
  sample(randn({5, 33}), "tanh");
  rejects("approximate must be", randn({3}), "fast");
}
SF_OP_TEST(where) {
  sample(boolean({4, 5}), randn({4, 5}), randn({5}));
  rejects("must be a bool tensor", randn({3}), randn({3}), randn({3}));
}
SF_OP_TEST(clamp) { sample(distinct({50}), -1.0, 1.5); }

}  // namespace sf::test
