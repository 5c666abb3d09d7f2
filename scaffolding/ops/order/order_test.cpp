#include "scaffolding/ops/order/order.h"

#include <cmath>

#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/op_test.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/sort/sort.h"
#include "scaffolding/ops/view/view.h"

namespace sf::test {

namespace {

Tensor with_nan() { return tensor({3, kNan, 1, 2, 5, 4, kNan, kNan, 0, 7, 8, 9}, kFloat64).reshape({3, 4}); }

}  // namespace

SF_OP_TEST(median) {
  sample(distinct({3, 4}));
  sample(distinct({5, 3}).transpose(0, 1));
  sample(randint(0, 5, {9}));
  sample(with_nan()).no_grad();  // NaN
  sample(randn({}));
  rejects("has no elements", randn({0}));
}
SF_OP_TEST(nanmedian) {
  sample(distinct({3, 4}));
  sample(with_nan()).no_grad();  // NaN
  sample(tensor({kNan, kNan}, kFloat64)).no_grad();
  rejects("has no elements", randn({0}));
}
SF_OP_TEST(median_dim) {
  sample(distinct({2, 4}), 1);
  sample(distinct({2, 3, 2}), 1, true);
  sample(distinct({5, 2}).transpose(0, 1), 1);
  sample(randint(0, 900, {2, 5}), 1);
  sample(randn({}), 0, true);
  rejects("dim must be in", randn({3}), 1);
  rejects("has no elements", randn({3, 0}), 1);
}
SF_OP_TEST(nanmedian_dim) {
  sample(distinct({3, 4}), 1);
  sample(with_nan(), 1).no_grad();  // NaN
  sample(with_nan(), 0, true).no_grad();
  rejects("dim must be in", randn({3}), 1);
}
SF_OP_TEST(kthvalue) {
  sample(distinct({3, 9}), 2);
  sample(distinct({9, 3}).transpose(0, 1), 9, 1, true);
  sample(randint(0, 900, {4, 5}), 3, 0);
  sample(randn({}), 1);
  rejects("k must be in [1, 3]", randn({3}), 4);
  rejects("k must be in [1, 3]", randn({3}), 0);
  rejects("has no elements", randn({3, 0}), 1);
}
SF_OP_TEST(mode) {
  sample(randint(0, 3, {4, 7}));
  sample(randint(0, 4, {7, 3}), 0, true);
  sample(randint(0, 3, {7, 2}, kUInt8).transpose(0, 1));
  sample(distinct({3, 4}), 1);
  sample(randn({}));
  rejects("dim must be in", randn({3}), 1);
  rejects("has no elements", randn({3, 0}));
}
SF_OP_TEST(quantile) {
  sample(distinct({3, 5}), 0.3).no_low_precision();  // q is exact here, and rounded there
  sample(distinct({3, 5}), tensor({0.1, 0.55, 0.9}, kFloat64), 1).no_low_precision();
  sample(distinct({3, 5, 2}).transpose(0, 2), 0.6, 1, true, "lower").no_low_precision();
  sample(distinct({3, 5}), tensor({0.3, 0.8}, kFloat64), 0, true, "higher").no_low_precision();
  sample(distinct({3, 5}), 0.3, none, true, "midpoint").no_low_precision();
  sample(distinct({7}), tensor({0.2, 0.7}, kFloat64), 0, false, "nearest").no_low_precision();
  sample(with_nan(), 0.5, 1).no_grad();  // NaN
  sample(randn({}), 0.4);
  rejects("q must be between 0 and 1", randn({3}), 1.5);
  rejects("q must have the dtype of input", randn({3}), randint(0, 1, {2}));
  rejects("one dimension", randn({3}), rand({2, 2}));
  rejects("interpolation must be", randn({3}), 0.5, 0, false, "cubic");
  rejects("floating-point", randint(0, 3, {3}), 0.5);
  rejects("has no elements", randn({0}), 0.5);
}
SF_OP_TEST(nanquantile) {
  sample(distinct({3, 5}), tensor({0.1, 0.55, 0.9}, kFloat64), 1).no_low_precision();
  sample(with_nan(), 0.25, 1).no_grad();  // NaN
  sample(with_nan(), tensor({0, 1}, kFloat64), 0, true, "higher").no_grad();
  rejects("q must be between 0 and 1", randn({3}), -0.5);
}
SF_OP_TEST(unique) {
  sample(randint(0, 5, {3, 2}), true, true, true).no_meta();
  sample(randint(0, 2, {6, 3}), true, true, true, 0).no_meta();
  sample(randint(0, 2, {2, 5, 2}, kInt32).transpose(0, 2), true, true, true, 1).no_meta();
  sample(tensor({2., kNan, 1, 2, kNan}, kFloat64), true, true, true).no_meta();
  sample(boolean({6}), true, false, true).no_meta();
  sample(randn({}), true, true).no_meta();
  sample(randint(0, 5, {0}), true, true, true).no_meta();
  rejects("dim must be in", randn({3}), true, false, false, 1);
  rejects("have no elements", randn({3, 0}), true, false, false, 0);
}
SF_OP_TEST(unique_consecutive) {
  sample(randint(0, 2, {5})).no_meta();
  sample(randint(0, 2, {3, 2}), true, true).no_meta();
  sample(randint(0, 2, {2, 5}).transpose(0, 1), true, true, 0).no_meta();
  sample(randint(0, 5, {0}), true, true).no_meta();
  rejects("dim must be in", randn({3}), true, false, 1);
}

namespace {

TEST(median, equal_elements_share_the_gradient) {
  Tensor x = tensor({2, 1, 2, 3}).requires_grad_();
  median(x).backward();
  EXPECT_EQ(x.grad().to_vector(), (std::vector<double>{0.5, 0, 0.5, 0}));
}

TEST(unique, rows_are_in_the_order_of_their_elements) {
  Tensor rows = tensor(std::vector<int64_t>{3, 0, 1, 2, 9, 9, 3, 0, 1, 2, -1, 5}, {4, 3});
  Tensors y = unique(rows, true, true, true, 0);
  EXPECT_EQ(y[0].to_vector(), (std::vector<double>{2, -1, 5, 2, 9, 9, 3, 0, 1}));
  EXPECT_EQ(y[1].to_vector(), (std::vector<double>{2, 1, 2, 0}));
  EXPECT_EQ(y[2].to_vector(), (std::vector<double>{1, 1, 2}));
}

TEST(median, long_rows_agree_with_their_order) {
  constexpr int64_t n = 3001;
  std::vector<double> v;
  for (int64_t i = 0; i < 4 * n; ++i) v.push_back(double(i * i % 9973 % 211 - 105));  // with equal elements
  const Tensor x = tensor(v, {4, n}, kFloat32);
  auto [values, order] = sort(x, 1);
  auto column = [](const Tensor& y, int64_t i) { return y.narrow(1, i, 1).reshape({-1}).to_vector(); };
  EXPECT_EQ(std::get<1>(median_dim(x, 1)).to_vector(), column(order, 1500));
  EXPECT_EQ(std::get<1>(kthvalue(x, 77, 1)).to_vector(), column(order, 76));
  EXPECT_EQ(std::get<0>(kthvalue(x.transpose(0, 1), n, 0)).to_vector(), column(values, n - 1));
  EXPECT_EQ(quantile(x, tensor({0.25, 0.5}), 1).select(0, 0).to_vector(), column(values, 750));
  std::vector<double> many;
  for (int i = 0; i <= 40; ++i) many.push_back(i / 40.0);
  EXPECT_EQ(quantile(x, tensor(many, {41}, kFloat32), 1).select(0, 30).to_vector(), column(values, 2250));
  Tensor holed = tensor(v, {4, n}, kFloat32);
  holed.narrow(1, 3, 1).fill_(kNan);
  EXPECT_EQ(std::get<1>(median_dim(holed, 1)).to_vector(), (std::vector<double>{3, 3, 3, 3}));
  EXPECT_EQ(isnan(quantile(holed, tensor({0.1}), 1)).to_vector(), (std::vector<double>{1, 1, 1, 1}));
  EXPECT_EQ(isnan(nanquantile(holed, tensor({0.1}), 1)).to_vector(), (std::vector<double>{0, 0, 0, 0}));
}

}  // namespace
}  // namespace sf::test
