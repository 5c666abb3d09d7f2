#include "scaffolding/ops/sort/sort.h"

#include <algorithm>
#include <cmath>

#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/op_test.h"
#include "scaffolding/ops/pointwise/pointwise.h"

namespace sf::test {

SF_OP_TEST(sort) {
  sample(distinct({4, 5}));
  sample(distinct({4, 5}), 0, true);
  sample(distinct({5, 3, 4}).transpose(0, 2), 1);
  sample(randint(0, 4, {3, 9}));
  sample(randint(0, 4, {3, 9}, kUInt8), 1, true, true);
  sample(distinct({}), 0);
  sample(distinct({3, 0}), 1);
  rejects("dim must be in", randn({3}), 1);
  rejects("must be a tensor", none);
}
SF_OP_TEST(argsort) {
  sample(distinct({4, 5}));
  sample(distinct({4, 5}), 0, true);
  rejects("dim must be in", randn({3}), -2);
}
SF_OP_TEST(topk) {
  sample(distinct({4, 9}), 3);
  sample(distinct({9, 4}), 2, 0, false);
  sample(distinct({4, 40}).transpose(0, 1), 40, 0);
  sample(distinct({4, 40}), 0);
  sample(distinct({}), 1);
  rejects("k must be in [0, 3]", randn({3}), 4);
  rejects("must not be negative", randn({3}), -1);
}

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity(), kNan = std::numeric_limits<double>::quiet_NaN();

TEST(sort, nan_is_the_largest_and_equals_keep_their_order) {
  for (auto t : {kFloat16, kBFloat16, kFloat32, kFloat64}) {
    Tensor x = tensor({kNan, 1, -0.0, kInf, 0.0, -kInf, 1, -kNan}, t);
    EXPECT_EQ(argsort(x).to_vector(), (std::vector<double>{5, 2, 4, 1, 6, 3, 0, 7})) << name(t);
    EXPECT_EQ(argsort(x, 0, true).to_vector(), (std::vector<double>{0, 7, 3, 1, 6, 2, 4, 5})) << name(t);
    EXPECT_EQ(std::get<1>(topk(x, 1)).item(), 0) << name(t);
  }
}

TEST(sort, long_rows_of_every_dtype) {  // the radix path
  for (auto t : {kUInt8, kInt8, kInt16, kInt32, kInt64, kBool, kFloat16, kBFloat16, kFloat32, kFloat64}) {
    constexpr int64_t n = 20000;
    std::vector<int64_t> v(n);
    uint64_t s = 1;
    for (auto& e : v) e = int64_t((s = s * 6364136223846793005ull + 1442695040888963407ull) >> 40) % 200000 - 100000;
    Tensor x = tensor(v, {n}, t);
    auto [values, indices] = sort(x);
    auto got = values.to_vector(), want = x.to_vector(), at = indices.to_vector();
    for (int64_t i = 0; i < n; ++i) ASSERT_EQ(got[size_t(i)], want[size_t(at[size_t(i)])]) << name(t);
    for (int64_t i = 1; i < n; ++i)
      ASSERT_TRUE(got[size_t(i)] > got[size_t(i - 1)] || at[size_t(i)] > at[size_t(i - 1)])
          << name(t) << " is not stable at " << i;
    std::stable_sort(want.begin(), want.end());
    ASSERT_EQ(got, want) << name(t);
  }
}

}  // namespace
}  // namespace sf::test
