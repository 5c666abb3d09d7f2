// Products large enough for several blocks of rows and of k, whichever operand lies: float32 against float64.
#include <gtest/gtest.h>

#include "scaffolding/core/provider.h"
#include "scaffolding/ops/ops.h"

namespace sf {
namespace {

double largest_difference(const Tensor& x, const Tensor& wide) { return amax(abs(x.to(kFloat64) - wide)).item(); }

struct Sizes {
  int64_t m, n, k;
};

void multiply_all(const Sizes& sizes) {
  const auto [m, n, k] = sizes;
  const Tensor x = randn({m, k}), weight = randn({n, k}), bias = randn({n}), wx = x.to(kFloat64),
               ww = weight.to(kFloat64), wb = bias.to(kFloat64);
  const double allowed = 2e-6 * double(k);
  const Tensor y = linear(wx, ww, wb);
  EXPECT_LT(largest_difference(linear(x, weight, bias), y), allowed);
  EXPECT_LT(largest_difference(matmul(x, weight.t()), y - wb), allowed);
  EXPECT_LT(largest_difference(matmul(x, contiguous(weight.t())), y - wb), allowed);
  EXPECT_LT(largest_difference(matmul(contiguous(x.t()).t(), weight.t()), y - wb), allowed);
  if (n % 2 == 0) {
    EXPECT_LT(largest_difference(linear_swiglu(x, weight, bias), linear_swiglu(wx, ww, wb)), allowed * 64);
  }
  EXPECT_LT(largest_difference(linear_act(x, weight, bias, "relu"), relu(y)), allowed);
}
constexpr Sizes kSizes[] = {{70, 410, 2100}, {410, 70, 2100}, {33, 1030, 130}, {1030, 34, 131},
                            {16, 250, 1500}, {13, 7, 3},      {45, 46, 1},     {130, 1100, 1024}};

TEST(RowGemm, multiplies_as_float64_does) {
  for (const Sizes& s : kSizes) multiply_all(s);
}
TEST(RowGemm, multiplies_with_the_baseline_instruction_set) {
  for (const char* table : {"gemm", "gated_linear"}) pin_provider(table, "native-base");
  for (const Sizes& s : kSizes) multiply_all(s);
  unpin_providers();
}

TEST(Conv1x1, multiplies_pixels) {
  const Tensor x = randn({2, 70, 9, 7}).contiguous(MemoryFormat::ChannelsLast), weight = randn({45, 70, 1, 1}),
               bias = randn({45});
  const Tensor wide = conv2d(x.to(kFloat64), weight.to(kFloat64), bias.to(kFloat64));
  EXPECT_LT(largest_difference(conv2d(x, weight, bias), wide), 2e-4);
}

}  // namespace
}  // namespace sf
