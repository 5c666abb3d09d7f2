#include "scaffolding/ops/op_test.h"

namespace sf::test {

SF_OP_TEST(reshape) {
  sample(randn({2, 6}), Shape{3, 4});
  sample(randn({2, 6}).transpose(0, 1), Shape{4, -1});  // needs a copy
  sample(randn({0, 3}), Shape{0, 7});
  sample(randn({1}), Shape{});
  rejects("reshape: ", randn({2, 3}), Shape{4, 2});
  rejects("reshape: ", randn({2, 3}), Shape{-1, -1});
  rejects("input must be a tensor", Tensor(), Shape{1});
}
SF_OP_TEST(view) {
  sample(randn({2, 6}), Shape{3, 4});
  sample(randn({4, 3}).transpose(0, 1), Shape{3, 2, 2});
  rejects("view: ", randn({2, 6}).transpose(0, 1), Shape{12});
  rejects("view: ", randn({2, 3}), Shape{7});
}
SF_OP_TEST(permute) {
  sample(randn({2, 3, 4}), Shape{2, 0, 1});
  sample(randn({2, 3, 4}), Shape{-1, 1, 0});
  sample(randn({}), Shape{});
  rejects("permute: ", randn({2, 3}), Shape{0});
  rejects("permute: ", randn({2, 3}), Shape{0, 0});
  rejects("permute: ", randn({2, 3}), Shape{0, 2});
}
SF_OP_TEST(transpose) {
  sample(randn({2, 3, 4}), 0, -1);
  sample(randn({2, 3}).transpose(0, 1), 1, 0);
  sample(randn({}), 0, 0);
  rejects("dim must be in", randn({2, 3}), 0, 2);
}
SF_OP_TEST(expand) {
  sample(randn({3, 1}), Shape{2, 3, 4});
  sample(randn({3, 1}), Shape{-1, 5});
  sample(randn({1}), Shape{0});
  sample(randn({}), Shape{2, 2});
  rejects("expand: ", randn({3, 2}), Shape{3, 4});
  rejects("expand: ", randn({3, 2}), Shape{2});
}
SF_OP_TEST(expand_as) {
  sample(randn({3, 1}), randn({2, 3, 4}));
  rejects("other must be a tensor", randn({3}), Tensor());
}
SF_OP_TEST(slice) {
  sample(randn({5, 3}), 0, 1, 4);
  sample(randn({5, 3}), 1, none, none, 2);
  sample(randn({5, 3}), 0, -3, 100);
  sample(randn({5, 3}), 0, 4, 1);  // empty
  sample(randn({3, 5}).transpose(0, 1), 0, 1, none, 3);
  rejects("step", randn({5}), 0, 0, 5, 0);
  rejects("slice: ", randn({}), 0);
}
SF_OP_TEST(narrow) {
  sample(randn({5, 3}), 0, 1, 3);
  sample(randn({5, 3}), -1, 3, 0);
  sample(randn({5, 3}), 0, -2, 2);
  rejects("narrow: ", randn({5}), 0, 3, 3);
  rejects("narrow: ", randn({5}), 0, 0, -1);
}
SF_OP_TEST(select) {
  sample(randn({5, 3}), 0, 2);
  sample(randn({5, 3}).transpose(0, 1), -1, -5);
  rejects("select: ", randn({5, 3}), 0, 5);
  rejects("select: ", randn({}), 0, 0);
}
SF_OP_TEST(unsqueeze) {
  sample(randn({2, 3}), 0);
  sample(randn({2, 3}), -1);
  sample(randn({}), 0);
  rejects("dim must be in", randn({2, 3}), 3);
}
SF_OP_TEST(squeeze) {
  sample(randn({1, 3, 1}));
  sample(randn({1, 3, 1}), Shape{-1});
  sample(randn({1, 3, 1}), Shape{1});  // not of size 1: nothing happens
  sample(randn({}));
  rejects("dim must be in", randn({2, 3}), Shape{2});
}
SF_OP_TEST(flatten) {
  sample(randn({2, 3, 4}));
  sample(randn({2, 3, 4}), 1, -1);
  sample(randn({2, 3, 4}).transpose(0, 2), 0, 1);
  sample(randn({}));
  rejects("flatten: ", randn({2, 3}), 1, 0);
}
SF_OP_TEST(unflatten) {
  sample(randn({6, 2}), 0, Shape{2, 3});
  sample(randn({2, 6}), -1, Shape{3, -1});
  rejects("unflatten: ", randn({6}), 0, Shape{4, 2});
}
SF_OP_TEST(as_strided) {
  sample(randn({4, 5}), Shape{2, 2}, Shape{6, 2}, 1);
  sample(randn({8}), Shape{3, 4}, Shape{2, 1});  // windows overlap: gradients add up
  sample(randn({3, 4}).narrow(0, 1, 2), Shape{2, 3}, Shape{4, 1}, 1);
  sample(randn({4}), Shape{2, 2}, Shape{0, 1});
  rejects("as_strided: ", randn({4}), Shape{3}, Shape{2});
  rejects("as_strided: ", randn({4}), Shape{2}, Shape{-1});
  rejects("as_strided: ", randn({4}), Shape{2}, Shape{1}, -1);
}
SF_OP_TEST(diagonal) {
  sample(randn({3, 4}));
  sample(randn({3, 4}), 1);
  sample(randn({3, 4}), -2);
  sample(randn({2, 3, 3}), 0, -2, -1);
  sample(randn({3, 3}), 9);  // outside: empty
  sample(randn({3, 3}), INT64_MIN).no_golden();
  rejects("diagonal: ", randn({3, 3}), 0, 1, 1);
}
SF_OP_TEST(movedim) {
  sample(randn({2, 3, 4}), Shape{0}, Shape{2});
  sample(randn({2, 3, 4}), Shape{0, 1}, Shape{-1, 0});
  rejects("movedim: ", randn({2, 3}), Shape{0, 1}, Shape{0});
  rejects("movedim: ", randn({2, 3}), Shape{0, 0}, Shape{0, 1});
}
SF_OP_TEST(chunk) {
  sample(randn({7, 2}), 3);
  sample(randn({2, 4}), 9, 1);
  rejects("chunks must be positive", randn({4}), 0);
  rejects("chunk: ", randn({}), 1);
}
SF_OP_TEST(split) {
  sample(randn({7, 2}), 3);
  sample(randn({7, 2}), Shape{1, 0, 6});
  sample(randn({2, 4}), Shape{3, 1}, -1);
  sample(randn({4}), INT64_MAX);
  rejects("must add up", randn({4}), Shape{1, 2});
  rejects("must be positive", randn({4}), 0);
  rejects("at most", empty({int64_t(1) << 40}, kFloat32, Device::Meta), 1);
}
SF_OP_TEST(unbind) {
  sample(randn({3, 2}));
  sample(randn({3, 2}), 1);
  sample(randn({0, 2}));
  rejects("unbind: ", randn({}));
  rejects("at most", empty({int64_t(1) << 40}, kFloat32, Device::Meta));
}

}  // namespace sf::test
