#include "scaffolding/ops/pool/pool.h"

#include <cmath>

#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/op_test.h"
#include "scaffolding/ops/random/random.h"

namespace sf::test {

static Tensor channels_last(const Tensor& t) { return t.contiguous(MemoryFormat::ChannelsLast); }

SF_OP_TEST(avg_pool1d) {
  sample(randn({2, 3, 9}), 3);
  sample(randn({3, 9}), 4, 3, 2, true, false);
  sample(randn({2, 9, 3}).transpose(1, 2), 2, 1);
  rejects("with 1 spatial dimensions", randn({9}), 3);
  rejects("kernel_size must be at least 1", randn({2, 3, 9}), 0);
}
SF_OP_TEST(avg_pool2d) {
  sample(randn({2, 3, 6, 7}), 2);
  sample(randn({2, 3, 6, 7}), Shape{3, 2}, Shape{2, 1}, Shape{1, 0}, true);
  sample(channels_last(randn({2, 19, 6, 7})), 3, 2, 1, true, false);
  sample(channels_last(randn({2, 3, 6, 7})), 3, 2, 1, false, true, 5);
  sample(randn({3, 6, 7}), 3, 2);
  sample(randn({0, 3, 6, 7}), 3, 2);
  rejects("padding must be at most half", randn({1, 1, 6, 6}), 3, 1, 2);
  rejects("does not fit", randn({1, 1, 2, 6}), 3);
  rejects("stride must be at least 1", randn({1, 1, 6, 6}), 3, 0);
  rejects("must have one entry or 2", randn({1, 1, 6, 6}), Shape{3, 3, 3});
  rejects("divisor_override must not be 0", randn({1, 1, 6, 6}), 3, 1, 0, false, true, 0);
  rejects("must be a floating-point tensor", randint(0, 9, {1, 1, 6, 6}), 3);
  rejects("must be between 1 and", randn({1, 1, 0, 6}), 1);
}
SF_OP_TEST(avg_pool3d) {
  sample(randn({1, 2, 4, 5, 6}), 2);
  sample(channels_last(randn({1, 3, 4, 5, 6})), Shape{2, 3, 3}, Shape{1, 2, 2}, 1, true, false);
}
SF_OP_TEST(max_pool1d) {
  sample(distinct({2, 3, 9}), 3);
  sample(distinct({3, 9}), 3, 1, 1, 2);
  rejects("padding must be at most half", randn({2, 9}), 3, 1, 2);
}
SF_OP_TEST(max_pool2d) {
  sample(distinct({2, 3, 6, 7}), 2);
  sample(distinct({2, 3, 6, 7}), Shape{3, 2}, Shape{2, 1}, Shape{1, 0}, Shape{1, 2}, true);
  sample(channels_last(distinct({2, 19, 6, 7})), 3, 2, 1);
  sample(distinct({2, 7, 6, 3}).transpose(1, 3), 3, 1, 1);
  sample(randn({0, 3, 6, 7}), 3, 2);
  rejects("does not fit", randn({1, 1, 4, 6}), 3, 1, 0, 2);
  rejects("dilation must be at least 1", randn({1, 1, 6, 6}), 3, 1, 0, 0);
  rejects("sees only padding", randn({1, 1, 1, 1}), 2, 2, 2, 3);
}
SF_OP_TEST(max_pool3d) {
  sample(distinct({1, 2, 4, 5, 6}), 2);
  sample(channels_last(distinct({1, 3, 4, 5, 6})), Shape{2, 3, 3}, Shape{1, 2, 2}, 1, 1, true);
}
SF_OP_TEST(max_pool1d_with_indices) { sample(distinct({2, 3, 9}), 3, 2); }
SF_OP_TEST(max_pool2d_with_indices) { sample(channels_last(distinct({2, 3, 6, 7})), 3, 2, 1); }
SF_OP_TEST(max_pool3d_with_indices) { sample(distinct({1, 2, 4, 5, 6}), 2, 1); }
SF_OP_TEST(adaptive_avg_pool1d) {
  sample(randn({2, 3, 9}), 4);
  sample(randn({3, 4}), 7);
}
SF_OP_TEST(adaptive_avg_pool2d) {
  sample(randn({2, 3, 6, 7}), Shape{4, -1}).no_golden();  // torch says None
  sample(channels_last(randn({2, 3, 6, 7})), 1);
  sample(channels_last(randn({2, 19, 6, 7})), Shape{5, 3});
  sample(randn({1, 2, 3, 3}), Shape{0, 2});
  rejects("output_size must be at least -1", randn({1, 1, 4, 4}), -2);
}
SF_OP_TEST(adaptive_avg_pool3d) { sample(randn({1, 2, 4, 5, 6}), Shape{2, 3, 4}); }
SF_OP_TEST(adaptive_max_pool1d) { sample(distinct({2, 3, 9}), 4); }
SF_OP_TEST(adaptive_max_pool2d) {
  sample(distinct({2, 3, 6, 7}), Shape{4, -1}).no_golden();  // torch says None
  sample(channels_last(distinct({2, 3, 6, 7})), Shape{5, 3});
}
SF_OP_TEST(adaptive_max_pool3d) { sample(distinct({1, 2, 4, 5, 6}), Shape{2, 3, 4}); }
SF_OP_TEST(adaptive_max_pool1d_with_indices) { sample(distinct({2, 3, 9}), 4); }
SF_OP_TEST(adaptive_max_pool2d_with_indices) { sample(distinct({2, 3, 6, 7}), Shape{4, 3}); }
SF_OP_TEST(adaptive_max_pool3d_with_indices) { sample(distinct({1, 2, 4, 5, 6}), Shape{2, 3, 4}); }

TEST(max_pool, nan_is_the_maximum_and_the_first_of_equals_is_chosen) {
  Tensor x = tensor(std::vector<float>{1, 1, NAN, 5, 2, 2}, {1, 1, 6});
  auto [y, index] = max_pool1d_with_indices(x, {2});
  EXPECT_EQ(y.to_vector()[0], 1);
  EXPECT_TRUE(std::isnan(y.to_vector()[1]));
  EXPECT_EQ(index.to_vector(), (std::vector<double>{0, 2, 4}));
}

TEST(pool, channels_last_in_channels_last_out) {
  Tensor x = channels_last(ones({2, 8, 6, 6}));
  EXPECT_TRUE(avg_pool2d(x, {2}).is_contiguous(MemoryFormat::ChannelsLast));
  EXPECT_TRUE(max_pool2d(x, {2}).is_contiguous(MemoryFormat::ChannelsLast));
  EXPECT_TRUE(adaptive_avg_pool2d(x, {3}).is_contiguous(MemoryFormat::ChannelsLast));
}

TEST(pool, an_average_of_everything_is_the_mean) {
  for (const Tensor& x : {sf::randn({2, 9, 6, 7}), channels_last(sf::randn({2, 9, 6, 7}))}) {
    const auto got = adaptive_avg_pool2d(x, {1}).to_vector(), each = to_dtype(x, kFloat64).contiguous().to_vector();
    ASSERT_EQ(got.size(), size_t(18));
    for (size_t i = 0; i < 18; ++i) {
      double sum = 0;
      for (size_t j = 0; j < 42; ++j) sum += each[42 * i + j];
      EXPECT_NEAR(got[i], sum / 42, 1e-6);
    }
  }
}

}  // namespace sf::test
