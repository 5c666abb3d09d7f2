#include "scaffolding/ops/search/search.h"

#include <algorithm>
#include <cmath>

#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/op_test.h"
#include "scaffolding/ops/sort/sort.h"

namespace sf::test {

namespace {

Tensor in_order(const Tensor& x) { return std::get<0>(sort(x)); }

}  // namespace

SF_OP_TEST(searchsorted) {
  sample(in_order(distinct({9})), randn({3, 4}));
  sample(in_order(distinct({3, 9})), randn({3, 4}), true, true);
  sample(in_order(randint(0, 5, {2, 9})), randint(0, 5, {2, 6}), false, false, "right");
  Tensor x = distinct({2, 7});
  sample(x, randn({2, 5}), false, false, none, argsort(x));
  sample(in_order(randint(0, 9, {7})), 4);
  sample(in_order(distinct({4, 5})).transpose(0, 1), randn({5, 3}));
  sample(tensor({1, 2, kNan}, kFloat64), tensor({kNan, 3., 1}, kFloat64));
  sample(randn({0}), randn({3}));
  sample(in_order(randn({4})), randn({0}));
  rejects("must have the dtype of the sequence", randn({3}), randint(0, 3, {2}));
  rejects("must have the leading dimensions", randn({2, 3}), randn({3, 3}));
  rejects("side must be", randn({3}), randn({3}), false, false, "middle");
  rejects("side and right disagree", randn({3}), randn({3}), false, true, "left");
  rejects("sorter must have shape", randn({3}), randn({3}), false, false, none, randint(0, 3, {4}));
  rejects("out of range", randn({3}), randn({3}), false, false, none, randint(3, 4, {3}));
  rejects("sorter must be int64", randn({3}), randn({3}), false, false, none, randn({3}));
  rejects("must have a dimension", randn({}), randn({3}));
  rejects("a number is looked up", randn({2, 3}), randn({}));
}
SF_OP_TEST(bucketize) {
  sample(randn({3, 4}), in_order(distinct({9})));
  sample(randint(0, 5, {3, 4}), in_order(randint(0, 5, {9})), true, true);
  sample(randn({4, 3}).transpose(0, 1), in_order(distinct({5})));
  sample(2.5, in_order(distinct({5})));
  rejects("must have one dimension", randn({3}), randn({2, 2}));
  rejects("must have the dtype", randn({3}), randint(0, 3, {2}));
}
SF_OP_TEST(isin) {
  sample(randint(0, 9, {3, 4}), randint(0, 9, {3}));
  sample(randint(0, 60, {3, 9}), randint(0, 60, {5, 5}), false, true);
  sample(randint(0, 60, {9, 3}, kInt32).transpose(0, 1), randint(0, 60, {40}));
  sample(randint(0, 4, {6}), 2);
  sample(randint(0, 4, {6}), randint(0, 4, {0}), false, true);
  sample(tensor({1, kNan}, kFloat64), tensor({kNan, 1.}, kFloat64));
  rejects("must be a tensor", none, randn({2}));
}
SF_OP_TEST(bincount) {
  sample(randint(0, 6, {12})).no_meta();
  sample(randint(0, 6, {12}, kInt32), none, 9).no_meta();
  sample(randint(0, 6, {12}), randn({12}), 2).no_meta().no_low_precision();  // sums in float64
  sample(randint(0, 6, {12}), randint(0, 5, {12})).no_meta();
  sample(randint(0, 6, {0}), none, 3).no_meta();
  rejects("must not be negative", randint(-4, -1, {3}));
  rejects("must have one dimension", randint(0, 4, {3, 2}));
  rejects("must be integers", randn({3}));
  rejects("weights must have shape", randint(0, 4, {3}), randn({4}));
  rejects("minlength must not be negative", randint(0, 4, {3}), none, -1);
}
SF_OP_TEST(histc) {
  sample(rand({30}), 5, 0.0, 1.0).no_low_precision();  // rounding moves elements over borders
  sample(distinct({4, 6}).transpose(0, 1), 4).no_low_precision();
  sample(tensor({0., 1, 2, 3, kNan, 4, 4}, kFloat64), 4, 0, 4);
  sample(tensor({2., 2, 2}, kFloat64), 3);
  sample(randn({0}), 3);
  rejects("bins must be positive", randn({3}), 0);
  rejects("min not above max", randn({3}), 4, 2, 1);
  rejects("must be finite", tensor({1., INFINITY}, kFloat64));
  rejects("floating-point", randint(0, 5, {3}));
}

TEST(bincount, many_numbers_are_each_counted) {
  for (int64_t bins : {1, 3, 1000, 2049, 5000})
    for (int64_t n : {1, 7, 20001}) {
      std::vector<int64_t> v;
      std::vector<double> want;
      for (int64_t i = 0; i < n; ++i) v.push_back(i * i % 7919 % bins);
      for (int64_t e : v) {
        if (e >= int64_t(want.size())) want.resize(size_t(e + 1));
        ++want[size_t(e)];
      }
      EXPECT_EQ(bincount(tensor(v, {n})).to_vector(), want) << bins << " " << n;
    }
  EXPECT_EQ(bincount(tensor(std::vector<int64_t>(9000, 2), {9000})).to_vector(), (std::vector<double>{0, 0, 9000}));
}

TEST(bincount, the_least_of_many_is_looked_for) {
  std::vector<int64_t> v(1000, 5);
  v[567] = -1;
  EXPECT_THROW(bincount(tensor(v, {1000})), Error);
}

TEST(histc, many_elements_are_counted_where_float32_has_the_borders) {
  std::vector<float> v;
  for (int64_t i = 0; i < 30001; ++i) v.push_back(float(i * i % 9973) / 997 - 5);
  v[3] = v[4000] = NAN, v[77] = INFINITY, v[78] = -INFINITY, v[79] = 4, v[80] = -4;
  for (int64_t bins : {1, 100, 3000, 9000}) {
    std::vector<double> want(static_cast<size_t>(bins));
    for (float x : v)
      if (x >= -4 && x <= 4) ++want[size_t(std::min(int64_t((x + 4.f) / 8.f * float(bins)), bins - 1))];
    EXPECT_EQ(histc(tensor(v, {30001}), bins, -4, 4).to_vector(), want) << bins;
  }
}

}  // namespace sf::test
