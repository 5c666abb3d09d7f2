// Samples of every reduction and scan. Special values and accuracy are in reduce_values_test.cpp.
#include <cmath>

#include "scaffolding/ops/op_test.h"
#include "scaffolding/ops/pointwise/pointwise.h"

namespace sf::test {

namespace {
Value dims(std::initializer_list<int64_t> d) { return Shape(d); }
}  // namespace

SF_OP_TEST(sum) {
  sample(randn({2, 3, 4}));
  sample(randn({2, 3, 4}), dims({1}), true);
  sample(randn({4, 3, 40}), dims({0, 2}));
  sample(randn({40, 3, 2}).transpose(0, 2), dims({-1}));
  sample(randn({3, 80}).slice(1, 0, 80, 2), dims({1}));
  sample(randn({33, 70}), dims({0}));
  sample(randn({0, 3}), dims({0}));
  sample(randn({}));
  sample(randint(-9, 9, {4, 5}, kInt8), dims({1}));
  sample(boolean({4, 5}));
  sample(randn({4, 5}), dims({1}), false, kFloat64).no_low_precision();
  rejects("dim must be in", randn({3}), dims({1}));
  rejects("appears twice", randn({3, 3}), dims({1, -1}));
  rejects("must be a tensor", none);
}
SF_OP_TEST(mean) {
  sample(randn({2, 3, 4}));
  sample(randn({2, 3, 4}), dims({1}), true);
  sample(randn({33, 70}), dims({0}));
  sample(randint(0, 9, {4}), none, false, kFloat64).no_golden();  // torch refuses dtype= where dim is None
  rejects("floating-point dtype", randint(0, 9, {3}));
}
SF_OP_TEST(prod) {
  sample(rand({5, 4}, 0.5, 1.5));
  sample(rand({5, 4}, 0.5, 1.5), dims({0}));
  sample(rand({2, 3, 4}, 0.5, 1.5).transpose(0, 2), dims({1}), true);
  sample(distinct({3, 5}) * randint(0, 2, {3, 5}), dims({1}));  // rows with zeros
  sample(rand({2, 3, 2}, 0.5, 1.5), dims({0, 2})).no_golden();  // torch has one dim only
  sample(randn({0, 3}), dims({0}));
  sample(randn({}));
  sample(randint(-3, 3, {4, 5}, kInt8), dims({1}));
  rejects("dim must be in", randn({3}), dims({1}));
}
SF_OP_TEST(var) {
  sample(randn({4, 5}));
  sample(randn({3, 40}), dims({1}));
  sample(randn({40, 17}), dims({0}), 0, true);
  sample(randn({2, 3, 4}).transpose(0, 2), dims({0, 2}), 2);
  sample(randn({4, 5}), dims({1}), 1, false, false);
  rejects("must be a floating-point tensor", randint(0, 9, {3}));
  rejects("dim must be in", randn({3}), dims({1}));
}
SF_OP_TEST(std) {
  sample(randn({4, 5}));
  sample(randn({3, 40}), dims({1}));
  sample(randn({40, 17}), dims({0}), 0, true);
  rejects("must be a floating-point tensor", boolean({3}));
}
SF_OP_TEST(var_mean) {
  sample(randn({4, 5}));
  sample(randn({3, 20}), dims({1}), 1, true);
  rejects("must be a floating-point tensor", boolean({3}));
}
SF_OP_TEST(std_mean) {
  sample(randn({4, 5}));
  sample(randn({3, 20}), dims({1}), 1, true);
  rejects("must be a tensor", none);
}
SF_OP_TEST(amax) {
  sample(distinct({4, 5}));
  sample(distinct({4, 5}), dims({0}));
  sample(distinct({3, 4, 40}), dims({0, 2}), true);
  sample(distinct({40, 20}).transpose(0, 1), dims({0}));
  sample(randint(-9, 9, {4, 5}, kInt16), dims({1}));
  rejects("no elements", randn({0, 3}), dims({0}));
  rejects("no elements", randn({0}));
}
SF_OP_TEST(amin) {
  sample(distinct({4, 5}));
  sample(distinct({4, 5}), dims({-2}), true);
  sample(boolean({4, 5}), dims({1}));
  rejects("no elements", randn({0}));
}
SF_OP_TEST(max_dim) {
  sample(distinct({4, 5}), 0);
  sample(distinct({4, 50}), 1, true);
  sample(distinct({5, 4}).transpose(0, 1), 0);
  sample(distinct({}), 0);
  sample(randint(-99, 99, {4, 5}), 1);
  rejects("no elements", randn({3, 0}), 1);
  rejects("dim must be in", randn({3}), 1);
}
SF_OP_TEST(min_dim) {
  sample(distinct({4, 5}), 0);
  sample(distinct({4, 5}), -1, true);
  rejects("no elements", randn({3, 0}), 1);
}
SF_OP_TEST(argmax) {
  sample(distinct({4, 5}));
  sample(distinct({4, 5}), 0);
  sample(distinct({4, 5}).transpose(0, 1), 1, true);
  sample(distinct({4, 5}), none, true);
  rejects("no elements", randn({0}));
  rejects("dim must be in", randn({3}), 4);
}
SF_OP_TEST(argmin) {
  sample(distinct({4, 5}));
  sample(distinct({4, 5}), 0);
  rejects("no elements", randn({0}));
}
SF_OP_TEST(any) {
  sample(boolean({4, 5}));
  sample(boolean({4, 5}), dims({1}), true);
  sample(randint(0, 2, {3, 4, 5}, kUInt8), dims({0, 2}));
  sample(randn({4, 5}), dims({0}));
  sample(boolean({0}));
  rejects("dim must be in", boolean({3}), dims({1}));
}
SF_OP_TEST(all) {
  sample(boolean({4, 2}), dims({1}));
  sample(randint(0, 9, {3, 4, 5}), dims({0, 2}), true);
  sample(boolean({0}));
  rejects("must be a tensor", none);
}
SF_OP_TEST(norm) {
  sample(randn({4, 5}));
  for (double p : {1.0, 2.0, 3.0, 0.5, kInf}) sample(distinct({4, 40}), p, dims({1}));
  sample(rand({4, 5}, 0.5, 2), -1.5, dims({0}), true);
  sample(distinct({4, 40}), -kInf, dims({0}));
  sample(distinct({4, 5}), 0.0, dims({1})).no_golden();  // torch gives no gradient at all, here it is 0
  rejects("floating-point dtype", randint(0, 9, {3}));
  rejects("no elements", randn({0}), kInf);
}
SF_OP_TEST(vector_norm) {
  sample(randn({4, 5}));
  sample(randn({4, 5}), 3.0, dims({0}), true);
  rejects("must be a number", randn({3}), std::nan(""));
}
SF_OP_TEST(logsumexp) {
  sample(randn({4, 5}), dims({1}));
  sample(randn({40, 20}), dims({0}), true);
  sample(randn({3, 4, 5}).transpose(0, 2), dims({0, 1}));
  sample(randint(0, 9, {4}), dims({0}));
  rejects("dim must be in", randn({3}), dims({2}));
}
SF_OP_TEST(cumsum) {
  sample(randn({4, 5}), 0);
  sample(randn({4, 50}), -1);
  sample(randn({3, 4, 5}).transpose(0, 2), 1);
  sample(randn({0, 4}), 0);
  sample(randn({}), 0);
  sample(boolean({6}), 0);
  rejects("dim must be in", randn({3}), 1);
}
SF_OP_TEST(cumprod) {
  sample(rand({4, 5}, 0.5, 1.5), 0);
  sample(rand({3, 7}, 0.5, 1.5), -1);
  sample(distinct({2, 6}) * randint(0, 2, {2, 6}), 1);
  sample(rand({}, 0.5, 1.5), 0);
  sample(randint(-3, 3, {6}, kInt32), 0);
  rejects("dim must be in", randn({3}), 1);
}

}  // namespace sf::test
