#include "scaffolding/ops/pointwise/composed.h"

#include <cmath>
#include <limits>

#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/op_test.h"
#include "scaffolding/ops/pointwise/pointwise.h"

namespace sf::test {

namespace {

Tensor with_specials() { return tensor({1.5, kNan, kInf, -kInf, -2.0, 0.0}, kFloat64); }

}  // namespace

SF_OP_TEST(nan_to_num) {
  sample(randn({3, 4}));
  sample(with_specials(), 1.0, 2.0, -3.0).no_grad();  // no differences of infinities
  sample(tensor({1.5, kNan}, kFloat64)).no_grad();
  sample(randint(0, 5, {4}));
  sample(randn({4, 3}).transpose(0, 1), 2.0);
  sample(randn({0, 3}));
  rejects("must be a tensor", none);
}
SF_OP_TEST(fmod) {
  sample(distinct({3, 5}), randn({5}));
  sample(randint(-9, 10, {12}), randint(1, 5, {12}));
  sample(randint(-9, 10, {12}), randint(-5, 0, {12}));
  sample(distinct({4, 3}).transpose(0, 1), 0.7).no_low_precision();  // 0.7 is another number there
  sample(randn({0}), randn({0}));
  rejects("do not broadcast", randn({3}), randn({4}));
}
SF_OP_TEST(hypot) {
  sample(randn({3, 4}), randn({4}));
  sample(randn({4, 3}).transpose(0, 1), randn({3, 4}));
  sample(tensor({0., 0, kInf, 3}, kFloat64), tensor({0., 2, kNan, 4}, kFloat64)).no_grad();  // at 0 and infinity
  rejects("do not broadcast", randn({3}), randn({4}));
}
SF_OP_TEST(copysign) {
  sample(randn({3, 4}), randn({4}));
  sample(tensor({1., -2, 3, -4}, kFloat64), tensor({0.0, -0.0, kInf, -kInf}, kFloat64)).no_grad();  // kinks
  sample(randint(-5, 6, {7}), randint(-5, 6, {7}));
  sample(randn({3}), -1.0);
  rejects("do not broadcast", randn({3}), randn({4}));
}
SF_OP_TEST(heaviside) {
  sample(randint(-1, 2, {9}), randint(5, 9, {9}));
  sample(tensor({-1., 0, 2, kNan}, kFloat64), tensor({0.5}, kFloat64));
  rejects("must have the dtype of input", randn({3}), randint(0, 2, {3}));
}
SF_OP_TEST(logaddexp) {
  sample(randn({3, 4}), randn({4}));
  sample(tensor({kInf, -kInf, 1000, kInf}, kFloat64), tensor({kInf, -kInf, 1001, 3}, kFloat64)).no_grad();  // inf - inf
  sample(randn({4, 3}).transpose(0, 1), randn({3, 4}));
  rejects("do not broadcast", randn({3}), randn({4}));
}
SF_OP_TEST(xlogy) {
  sample(randn({3, 4}), rand({4}, 0.5, 2));
  sample(tensor({0., 0, 0, 2}, kFloat64), tensor({0., kNan, kInf, 3}, kFloat64)).no_grad();  // log of 0
  sample(rand({3}, 1, 2), 2.5).no_low_precision();  // a number is exact where the golden one is rounded
  rejects("do not broadcast", randn({3}), randn({4}));
}
SF_OP_TEST(fmax) {
  sample(distinct({3, 4}), randn({4}));
  sample(tensor({1., kNan, 3, kNan}, kFloat64), tensor({kNan, 2., 1, kNan}, kFloat64)).no_grad();  // NaN
  sample(randint(0, 9, {5}), randint(0, 9, {5}));
  rejects("do not broadcast", randn({3}), randn({4}));
}
SF_OP_TEST(fmin) {
  sample(distinct({3, 4}), randn({4}));
  sample(tensor({1., kNan, 3, kNan}, kFloat64), tensor({kNan, 2., 1, kNan}, kFloat64)).no_grad();  // NaN
  rejects("do not broadcast", randn({3}), randn({4}));
}

namespace {

TEST(nan_to_num, infinities_become_the_largest_number_of_the_dtype) {
  for (auto [t, most] : {std::pair{kFloat16, 65504.0}, {kBFloat16, 0x1.fep127}, {kFloat32, 0x1.fffffep127}}) {
    Tensor y = nan_to_num(tensor({kInf, -kInf, kNan}, t));
    EXPECT_EQ(y.to_vector(), (std::vector<double>{most, -most, 0})) << name(t);
  }
}

TEST(nan_to_num, what_was_replaced_gets_no_gradient) {
  Tensor x = tensor({1, kNan, kInf, 2}).requires_grad_();
  nan_to_num(x).sum().backward();
  EXPECT_EQ(x.grad().to_vector(), (std::vector<double>{1, 0, 0, 1}));
}

TEST(fmod, has_the_sign_of_input_and_a_gradient_at_0) {
  Tensor x = tensor({-5, 5, -0.0, 0}).requires_grad_();
  Tensor y = fmod(x, tensor({3, -3, 2, 2}));
  EXPECT_EQ(y.to_vector(), (std::vector<double>{-2, 2, 0, 0}));
  y.sum().backward();
  EXPECT_EQ(x.grad().to_vector(), (std::vector<double>{1, 1, 1, 1}));
  int64_t least = std::numeric_limits<int64_t>::min();
  EXPECT_EQ(
      fmod(tensor(std::vector<int64_t>{least, least}, {2}), tensor(std::vector<int64_t>{10, -10}, {2})).to_vector(),
      (std::vector<double>{-8, -8}));
}

TEST(hypot, does_not_overflow_on_the_way) {
  EXPECT_FLOAT_EQ(float(hypot(tensor({3e30}), tensor({4e30})).item()), 5e30f);
}

}  // namespace
}  // namespace sf::test
