#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/op_test.h"

namespace sf::test {

SF_OP_TEST(conv1d) {
  sample(randn({2, 4, 9}), randn({6, 4, 3}), randn({6}));
  sample(randn({2, 4, 9}), randn({6, 2, 3}), none, 2, 2, 2, 2);
  sample(randn({4, 9}), randn({6, 4, 4}), none, 1, "same");
  rejects("must have 3 dimensions", randn({2, 4, 9, 9}), randn({6, 4, 3}));
}
SF_OP_TEST(conv2d) {
  sample(randn({2, 3, 7, 6}), randn({5, 3, 3, 3}), randn({5}), 1, 1);
  sample(to_channels_last(randn({2, 16, 8, 8})), randn({16, 16, 3, 3}), randn({16}), 1, 1);
  sample(randn({3, 16, 7, 9}), randn({32, 16, 3, 3}), none, 1, 1);  // Winograd by way of a copy, with odd edges
  sample(randn({1, 4, 9, 8}), randn({6, 2, 3, 2}), none, Shape{2, 1}, Shape{1, 0}, Shape{1, 2}, 2);
  sample(randn({1, 4, 5, 5}), randn({4, 1, 3, 3}), randn({4}), 1, "same", 1, 4);
  sample(randn({2, 3, 5, 5}), randn({4, 3, 2, 2}), none, 1, "same");
  sample(randn({2, 8, 5, 4}), randn({3, 8, 1, 1}), randn({3}));
  // Pictures so small that every output pixel sees every input pixel.
  sample(randn({33, 3, 2, 2}), randn({2, 3, 3, 3}), randn({2}), 1, 1);
  sample(to_channels_last(randn({8, 6, 2, 2})), randn({7, 6, 3, 3}), none, 2, 1);
  sample(randn({8, 3, 1, 1}), randn({5, 3, 3, 3}), randn({5}), 1, 1);
  sample(randn({12, 3, 3, 2}), randn({5, 3, 3, 2}));
  sample(randn({0, 3, 5, 5}), randn({4, 3, 3, 3})).no_golden();
  rejects("does not fit", randn({1, 3, 2, 2}), randn({4, 3, 3, 3}));
  rejects("input channels", randn({1, 5, 4, 4}), randn({4, 3, 3, 3}));
  rejects("groups must divide", randn({1, 3, 4, 4}), randn({4, 3, 3, 3}), none, 1, 0, 1, 2);
  rejects("stride must be at least 1", randn({1, 3, 4, 4}), randn({4, 3, 3, 3}), none, 0);
  rejects("'same' or 'valid'", randn({1, 3, 4, 4}), randn({4, 3, 3, 3}), none, 1, "full");
  rejects("bias must have shape", randn({1, 3, 4, 4}), randn({4, 3, 3, 3}), randn({3}));
  rejects("one dtype", randn({1, 3, 4, 4}), randint(0, 2, {4, 3, 3, 3}));
}
SF_OP_TEST(conv3d) {
  sample(randn({2, 3, 4, 5, 4}), randn({4, 3, 3, 3, 3}), randn({4}), 1, 1);
  sample(randn({1, 4, 4, 5, 6}), randn({4, 2, 2, 3, 1}), none, Shape{1, 2, 1}, Shape{0, 1, 0}, 1, 2);
}
SF_OP_TEST(conv_transpose1d) { sample(randn({2, 4, 5}), randn({4, 3, 3}), randn({3}), 2, 1, 1); }
SF_OP_TEST(conv_transpose2d) {
  sample(randn({2, 4, 5, 4}), randn({4, 3, 3, 3}), randn({3}), 2, 1, 1);
  sample(randn({1, 4, 5, 4}), randn({4, 2, 2, 3}), none, Shape{1, 2}, Shape{0, 1}, 0, 2, 2);
  rejects("output_padding must be smaller", randn({1, 4, 5, 4}), randn({4, 3, 3, 3}), none, 1, 0, 1);
  rejects("leave no output", randn({1, 4, 1, 1}), randn({4, 3, 1, 1}), none, 1, 1);
}
SF_OP_TEST(conv_transpose3d) { sample(randn({1, 3, 2, 3, 2}), randn({3, 2, 2, 2, 2}), randn({2}), 2); }

}  // namespace sf::test
