// Shapes and refusals; the numbers are compared with torch's in random_test.cpp.
#include "scaffolding/ops/op_test.h"

namespace sf::test {

SF_OP_TEST(rand) {
  sample(Shape{2, 3});
  sample(Shape{0, 3});
  rejects("negative", Shape{-1});
  rejects("dtype", Shape{2}, none, kInt64);
}
SF_OP_TEST(randn) {
  sample(Shape{2, 3});
  sample(Shape{});
  rejects("negative", Shape{-1});
  rejects("dtype", Shape{2}, none, kBool);
}
SF_OP_TEST(randint) {
  sample(0, 5, Shape{2, 3});
  rejects("randint: ", 5, 5, Shape{2});
  rejects("negative", 0, 5, Shape{-1});
}
SF_OP_TEST(randperm) {
  sample(7);
  sample(0);
  rejects("randperm: ", -1);
}
SF_OP_TEST(rand_like) {
  sample(randn({2, 3}).transpose(0, 1));
  rejects("input must be a tensor", Tensor());
}
SF_OP_TEST(randn_like) {
  sample(randn({2, 3}).transpose(0, 1));
  rejects("input must be a tensor", Tensor());
}
SF_OP_TEST(randint_like) {
  sample(randn({2, 3}), -2, 5);
  rejects("input must be a tensor", Tensor(), 0, 5);
  rejects("randint_like: ", randn({2}), 3, 1);
}
SF_OP_TEST(normal) {
  sample(randn({2, 3}), rand({3}));
  sample(0.5, 2.0, Shape{2, 3});
  rejects("std must not be negative", 0.0, -1.0, Shape{2});
}
SF_OP_TEST(bernoulli) {
  sample(rand({2, 3}));
  sample(randn({2, 3}), 0.25);
  rejects("p must be between 0 and 1", randn({2}), 1.5);
}
SF_OP_TEST(uniform_) {
  sample(randn({2, 3}), -1.0, 1.0);
  rejects("uniform_: ", randn({2}), 1.0, 0.0);
  rejects("uniform_: ", randint(0, 5, {2}));
}
SF_OP_TEST(normal_) {
  sample(randn({2, 3}), 1.0, 0.5);
  rejects("normal_: ", randn({2}), 0.0, -1.0);
  rejects("normal_: ", randint(0, 5, {2}));
}
SF_OP_TEST(random_) {
  sample(randint(0, 5, {2, 3}), -3, 9);
  sample(randint(0, 5, {2, 3}));
  rejects("random_: ", randint(0, 5, {2}), 3, 3);
}
SF_OP_TEST(bernoulli_) {
  sample(randn({2, 3}), 0.25);
  sample(randn({2, 3}), rand({3}));
  rejects("bernoulli_: ", randn({2}), -0.5);
}
SF_OP_TEST(exponential_) {
  sample(randn({2, 3}), 2.0);
  rejects("exponential_: ", randn({2}), 0.0);
  rejects("exponential_: ", randint(0, 5, {2}));
}
SF_OP_TEST(multinomial) {
  sample(rand({2, 5}), 3);
  sample(rand({4}), 9, true);
  rejects("multinomial: ", rand({4}), 5);
  rejects("multinomial: ", rand({4}), 0);
  rejects("multinomial: ", randint(0, 3, {4}), 1);
}

}  // namespace sf::test
