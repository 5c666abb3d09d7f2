#include "scaffolding/ops/unfold/unfold.h"

#include "scaffolding/ops/op_test.h"

namespace sf::test {

SF_OP_TEST(unfold) {
  sample(randn({2, 3, 5, 6}), 3);
  sample(randn({2, 3, 5, 6}).contiguous(MemoryFormat::ChannelsLast), Shape{2, 3}, Shape{1, 2}, Shape{2, 1},
         Shape{2, 1});
  sample(randn({3, 5, 6}), Shape{1, 4}, 1, Shape{0, 3}, 3);
  sample(randn({0, 3, 5, 6}), 3);
  rejects("does not fit", randn({1, 1, 2, 6}), 3);
  rejects("kernel_size must be at least 1", randn({1, 1, 6, 6}), 0);
  rejects("stride must be at least 1", randn({1, 1, 6, 6}), 2, 1, 0, 0);
  rejects("must be [N, C, H, W]", randn({6, 6}), 2);
}
SF_OP_TEST(fold) {
  sample(randn({2, 27, 12}), Shape{5, 6}, 3);
  sample(randn({2, 20, 9}).transpose(1, 2), Shape{8, 5}, 3, 1, 1, Shape{2, 1});
  sample(randn({9, 5}), Shape{1, 11}, Shape{1, 3}, Shape{1, 2}, Shape{0, 1}, 2);
  rejects("must be a multiple of the kernel's size", randn({2, 10, 12}), Shape{5, 6}, 3);
  rejects("places for the kernel", randn({2, 9, 13}), Shape{5, 6}, 3);
  rejects("must be a floating-point tensor", randint(0, 5, {2, 9, 12}), Shape{5, 6}, 3);
}
SF_OP_TEST(unfold_dim) {
  sample(randn({7, 3}), 0, 3, 2);
  sample(randn({3, 7}), -1, 2, 3);
  sample(randn({2, 6, 3}).transpose(1, 2), 2, 4, 1);
  sample(randn({}), 0, 1, 1);
  sample(randn({4}), 0, 0, 1);
  rejects("size must be between", randn({4}), 0, 5, 1);
  rejects("step must be positive", randn({4}), 0, 2, 0);
}

}  // namespace sf::test
