#include "scaffolding/ops/sort/sort.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/index/index.h"
#include "scaffolding/ops/op_test.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/view/view.h"

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

// Pseudo-random numbers below `limit`.
std::vector<int64_t> numbers(int64_t n, uint64_t limit) {
  std::vector<int64_t> v(static_cast<size_t>(n));
  uint64_t s = 7;
  for (auto& e : v) e = int64_t(((s = s * 6364136223846793005ull + 1442695040888963407ull) >> 20) % limit);
  return v;
}

// What sort must find: T's order, NaN last, equal elements in the order in which they came.
template <class T> void expect_sorted(const std::vector<T>& x, DType t, const char* what) {
  const Tensor in = tensor(x, {int64_t(x.size())}, t);
  for (bool descending : {false, true}) {
    std::vector<int64_t> want(x.size());
    for (size_t i = 0; i < x.size(); ++i) want[i] = int64_t(i);
    std::stable_sort(want.begin(), want.end(), [&](int64_t i, int64_t j) {
      T a = x[size_t(descending ? j : i)], b = x[size_t(descending ? i : j)];
      return a < b || (a == a && b != b);
    });
    auto [values, indices] = sort(in, 0, descending);
    ASSERT_TRUE(std::equal(want.begin(), want.end(), indices.data<int64_t>())) << what << " " << x.size();
    for (size_t i = 0; i < x.size(); ++i)  // bytes, so that -0 is not 0
      ASSERT_EQ(std::memcmp(values.data<T>() + i, &x[size_t(want[i])], sizeof(T)), 0) << what << " " << x.size();
  }
}

TEST(sort, rows_of_every_length_and_kind_of_keys) {
  constexpr int64_t least = std::numeric_limits<int64_t>::min(), most = std::numeric_limits<int64_t>::max();
  for (int64_t n : {1, 2, 191, 192, 1000, 16384, 20000}) {
    std::vector<int64_t> few = numbers(n, 7), all_equal(static_cast<size_t>(n), -3), wide = numbers(n, 1 << 20),
                         upper = numbers(n, 5), ends = numbers(n, 4);
    std::vector<double> floats;
    const double special[] = {kNan, -kNan, -0.0, 0.0, kInf, -kInf, 5e-324, -5e-324, 1.0, 1.0 + 1e-15};
    for (auto& e : few) e -= 3;
    for (auto& e : wide) e = (e - (1 << 19)) * 8000000000000;
    for (auto& e : upper) e = most - e % 2 * (int64_t(1) << 40) - e;  // keys that differ in their lower bits alone
    for (auto& e : ends) e = e == 0 ? least : e == 1 ? most : e == 2 ? least + 1 : 0;
    for (auto e : numbers(n, 13)) floats.push_back(e < 10 ? special[e] : double(e) - 11.5);
    expect_sorted(few, kInt64, "few");
    expect_sorted(all_equal, kInt64, "all equal");
    expect_sorted(wide, kInt64, "wide");
    expect_sorted(upper, kInt64, "upper");
    expect_sorted(ends, kInt64, "ends");
    expect_sorted(floats, kFloat64, "floats");
    std::vector<float> narrow(floats.begin(), floats.end());
    expect_sorted(narrow, kFloat32, "narrow");
  }
}

// x[3, n] for a dtype: with few values or many, NaN and zeros of both signs among floats.
Tensor rows_like(DType t, int64_t n, uint64_t limit) {
  std::vector<double> v;
  for (auto e : numbers(3 * n, limit))
    v.push_back(e == 1 && is_floating(t) ? kNan : e == 2 ? -0.0 : e == 3 ? 0.0 : double(e - int64_t(limit / 2)));
  return to_dtype(tensor(v, {3, n}, kFloat64), t);
}

TEST(topk, a_few_of_long_rows_are_the_first_of_the_whole_order) {
  for (auto t : {kUInt8, kInt8, kInt16, kInt32, kInt64, kFloat16, kBFloat16, kFloat32, kFloat64})
    for (int64_t n : {256, 1023, 5000})
      for (uint64_t limit : {1, 5, 120, 100000})
        for (int64_t k : {1, 10, 17, 64, 250})
          for (bool largest : {false, true}) {
            Tensor x = rows_like(t, n, t == kUInt8 || limit < 120 ? 5 : limit);
            if (t == kUInt8) x = to_dtype(randint(0, int64_t(limit), {3, n}), t);
            const Tensor across = x.transpose(0, 1).contiguous().transpose(0, 1);
            auto want = argsort(x, 1, largest).narrow(1, 0, k).to_vector();
            auto [values, at] = topk(x, k, 1, largest);
            ASSERT_EQ(at.to_vector(), want) << name(t) << " " << n << " " << limit << " " << k;
            ASSERT_EQ(std::get<1>(topk(across, k, 1, largest)).to_vector(), want) << name(t) << " " << n << " " << k;
            auto got = values.to_vector(), taken = gather(x, 1, at).to_vector();
            ASSERT_EQ(std::memcmp(got.data(), taken.data(), got.size() * sizeof(double)), 0) << name(t);
          }
}

TEST(topk, many_equal_elements_keep_their_order) {
  const Tensor x = rows_like(kInt32, 30000, 5);
  for (int64_t k : {250, 4096, 4097, 7000})
    EXPECT_EQ(std::get<1>(topk(x, k)).to_vector(), argsort(x, 1, true).narrow(1, 0, k).to_vector()) << k;
}

TEST(topk, rows_in_order_already) {
  const Tensor up = arange(0, 5000, 1, kFloat32);
  for (int64_t k : {1, 10, 64}) {
    EXPECT_EQ(std::get<0>(topk(up, k)).to_vector(), arange(4999, 4999 - k, -1, kFloat32).to_vector());
    EXPECT_EQ(std::get<0>(topk(up, k, 0, false)).to_vector(), arange(0, k, 1, kFloat32).to_vector());
  }
}

TEST(sort, places_of_ranks_are_those_of_the_whole_order) {
  for (auto t : {kUInt8, kBool, kInt8, kInt16, kInt32, kInt64, kFloat16, kBFloat16, kFloat32, kFloat64})
    for (int64_t n : {1, 7, 1000, 5000})
      for (uint64_t limit : {5, 120, 100000}) {
        const Tensor x = t == kUInt8 || t == kBool ? to_dtype(randint(0, 2, {3, n}), t) : rows_like(t, n, limit);
        std::vector<int64_t> wanted{0, n - 1, n / 2, n / 2, n / 3, n - 1 - n / 7};
        for (size_t k : {1, 2, 6}) {
          Tensor ranks =
              tensor(std::vector<int64_t>(wanted.begin(), wanted.begin() + int64_t(k)), {1, int64_t(k)}, kInt64);
          ranks = ranks.expand({3, int64_t(k)});
          ASSERT_EQ(places_of_ranks(x, ranks).to_vector(), gather(argsort(x, 1), 1, ranks).to_vector())
              << name(t) << " " << n << " " << limit << " " << k;
        }
      }
}

TEST(sort, places_of_ranks_among_far_apart_numbers) {
  constexpr int64_t least = std::numeric_limits<int64_t>::min(), most = std::numeric_limits<int64_t>::max();
  std::vector<int64_t> v = numbers(3000, 1000);
  v[5] = least, v[9] = most, v[2000] = most, v[2001] = 0;  // one bucket holds nearly all
  const Tensor x = tensor(v, {1, 3000}, kInt64), ranks = arange(0, 3000, 1, kInt64).reshape({1, 3000});
  Tensor order = argsort(x, 1);
  for (int64_t r : {0, 1, 2, 1500, 2997, 2998, 2999})
    ASSERT_EQ(places_of_ranks(x, ranks.narrow(1, r, 1)).item_int(), order.narrow(1, r, 1).item_int()) << r;
  EXPECT_EQ(places_of_ranks(x, ranks).to_vector(), order.to_vector());  // more ranks than are selected one by one
}

}  // namespace
}  // namespace sf::test
