#include <cmath>
#include <limits>

#include "scaffolding/core/half.h"
#include "scaffolding/ops/cat/cat.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/op_test.h"
#include "scaffolding/ops/random/random.h"

namespace sf::test {

SF_OP_TEST(clone) {
  sample(randn({2, 3}));
  sample(randn({2, 3, 4}).transpose(0, 2));
  sample(randn({3, 1}).expand({3, 4}));
  sample(randn({0}));
  sample(randint(0, 9, {3}));
  rejects("input must be a tensor", Tensor());
}
SF_OP_TEST(contiguous) {
  sample(randn({2, 3}));
  sample(randn({2, 3, 4}).transpose(0, 2));
  sample(boolean({3, 1}).expand({3, 4}));
  rejects("input must be a tensor", Tensor());
}

// Numbers at every edge of the 16-bit types, 37 of them so that whole vectors and a rest are there.
static Tensor edges() {
  const float inf = std::numeric_limits<float>::infinity();
  std::vector<float> v{0,       -0.f,    1,       65504, 65519, 65520,         -65520,      6e-8f,
                       2.9e-8f, 6.1e-5f, 3.4e38f, inf,   -inf,  std::nanf(""), 1.00390625f, 1.01171875f};
  while (v.size() < 37) v.push_back(float(v.size()) * 0.37f - 5);
  return tensor(v, {int64_t(v.size())});
}
template <class T> static void expect_rounded(DType t) {
  const Tensor x = edges(), y = to_dtype(x, t), back = to_dtype(y, kFloat32);
  for (int64_t i = 0; i < x.numel(); ++i) {
    const T want = from_float<T>(x.data<float>()[i]);
    EXPECT_EQ(y.data<T>()[i].bits, want.bits) << name(t) << " of " << x.data<float>()[i];
    const float wide = to_float(want), got = back.data<float>()[i];
    EXPECT_TRUE(got == wide || (got != got && wide != wide)) << name(t) << " of " << x.data<float>()[i];
  }
}
TEST(copy, casts_round_to_nearest_even_in_whole_vectors_as_one_by_one) {
  expect_rounded<Half>(kFloat16);
  expect_rounded<BFloat16>(kBFloat16);
}
TEST(copy, casts_follow_the_layout_of_either_side) {
  Tensor x = sf::randn({2, 3, 4, 5}), dense = to_dtype(x, kFloat16);
  for (const Tensor& view : {x.contiguous(MemoryFormat::ChannelsLast), x.transpose(0, 3).contiguous().transpose(0, 3),
                             flip(flip(x, {1}), {1})})
    EXPECT_EQ(to_dtype(view, kFloat16).to_vector(), dense.to_vector());
  EXPECT_EQ(to_dtype(x.narrow(3, 1, 3), kFloat16).to_vector(), dense.narrow(3, 1, 3).to_vector());
  Tensor row = sf::randn({1, 5});
  EXPECT_EQ(to_dtype(row.expand({4, 5}), kBFloat16).to_vector(), to_dtype(row, kBFloat16).expand({4, 5}).to_vector());
}
TEST(copy, floats_become_whole_numbers_in_vectors_as_one_by_one) {
  std::vector<float> v;
  for (int i = 0; i < 300; ++i) v.push_back(float(i) * 0.7f - 100);
  for (bool special : {false, true}) {
    if (special) v[70] = 3e9f, v[130] = NAN, v[200] = -INFINITY, v[290] = -3e19f;
    for (DType from : {kFloat32, kBFloat16, kFloat16})
      for (DType to : {kUInt8, kInt8, kInt16, kInt32, kInt64}) {
        const Tensor x = to_dtype(tensor(v, {300}), from), y = to_dtype(x, to);
        const auto numbers = y.to_vector();
        for (int64_t i = 0; i < 300; ++i)
          ASSERT_EQ(numbers[size_t(i)], to_dtype(x.narrow(0, i, 1), to).to_vector()[0])
              << name(to) << ' ' << v[size_t(i)];
      }
  }
}

// [rows, cols] of integers of its dtype, row by row.
static Tensor counted(int64_t rows, int64_t cols, DType t) {
  return to_dtype(arange(0, double(rows * cols), 1, kInt64), t).view({rows, cols});
}
TEST(copy, turns_rows_into_columns_at_every_size) {
  for (DType t : {kUInt8, kBFloat16, kFloat32, kInt64})
    for (auto [rows, cols] : {std::pair{8, 8}, {16, 64}, {33, 70}, {64, 31}, {130, 129}}) {
      const Tensor x = counted(rows, cols, t), y = x.t().contiguous();
      const auto from = x.to_vector(), to = y.to_vector();
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = 0; c < cols; ++c)
          ASSERT_EQ(to[size_t(c * rows + r)], from[size_t(r * cols + c)]) << name(t) << ' ' << rows << 'x' << cols;
    }
}
TEST(copy, turns_inner_dimensions_into_part_of_a_larger_tensor) {
  const Tensor x = sf::randn({2, 3, 40, 21});
  Tensor y = zeros({2, 3, 24, 44});
  y.narrow(2, 1, 21).narrow(3, 2, 40).copy_(x.transpose(2, 3));
  for (int64_t n : {0, 1})
    for (int64_t c : {0, 2})
      for (int64_t i : {0, 20})
        for (int64_t j : {0, 17, 39})
          EXPECT_EQ(y.select(0, n).select(0, c).select(0, i + 1).select(0, j + 2).item<float>(),
                    x.select(0, n).select(0, c).select(0, j).select(0, i).item<float>());
  for (const Tensor& beside : {y.narrow(3, 0, 2), y.narrow(3, 42, 2), y.narrow(2, 0, 1), y.narrow(2, 22, 2)})
    for (double number : beside.to_vector()) ASSERT_EQ(number, 0);
}

TEST(item, comes_as_the_type_asked_for) {
  const int64_t large = (int64_t(1) << 53) + 1;
  EXPECT_EQ(full({}, 3.75).item<float>(), 3.75f);
  EXPECT_EQ(full({1, 1}, -3.75).item<int32_t>(), -3);
  EXPECT_EQ(full({}, 7, kUInt8).item<int64_t>(), 7);
  EXPECT_TRUE(full({}, 0.5).item<bool>());
  EXPECT_EQ(full({}, 1.00390625, kFloat16).item<BFloat16>().bits, to_bfloat16(1.00390625f).bits);
  Tensor whole = zeros({}, kInt64);
  *whole.data<int64_t>() = large;
  EXPECT_EQ(whole.item<int64_t>(), large);
  EXPECT_EQ(whole.item_int(), large);
}
TEST(item, that_does_not_fit_is_refused) {
  EXPECT_THROW(full({}, 256, kInt64).item<uint8_t>(), ValueError);
  EXPECT_THROW(full({}, -1, kInt32).item<uint8_t>(), ValueError);
  EXPECT_THROW(full({}, 3e9).item<int32_t>(), ValueError);
  EXPECT_THROW(full({}, std::nan("")).item<int64_t>(), ValueError);
  EXPECT_THROW(zeros({2}).item<float>(), ValueError);
}

}  // namespace sf::test
