#include "scaffolding/ops/conv/narrow_conv.h"

#include <gtest/gtest.h>

#include "scaffolding/core/printing.h"
#include "scaffolding/ops/conv/conv.h"
#include "scaffolding/ops/ops.h"

namespace sf {
namespace {

double narrow_apart(const Tensor& a, const Tensor& b) {
  return amax(abs(a.to(kFloat64) - b.to(kFloat64))).item<double>();
}

struct NarrowCase {
  Shape x, weight;
  int64_t stride, padding;
  bool taken = true;
};
const NarrowCase kNarrowCases[] = {
    {{2, 64, 2, 2}, {96, 64, 3, 3}, 1, 1},  // few pixels
    {{1, 40, 5, 7}, {33, 40, 3, 3}, 1, 1},  // channels that fill no strip
    {{1, 70, 9, 9}, {17, 70, 3, 3}, 2, 1},  // a stride
    {{1, 32, 6, 6}, {32, 32, 5, 2}, 1, 0},  // other taps
    {{1, 32, 4, 4, 4}, {16, 32, 3, 3, 3}, 1, 1},
    {{2, 48, 24, 24}, {64, 48, 3, 3}, 1, 1},         // Winograd's, where the processor has it
    {{1, 32, 40, 40}, {32, 32, 3, 3}, 2, 1, false},  // many pixels: widening costs little
    {{1, 32, 6, 6}, {32, 32, 1, 1}, 1, 0, false},    // a product
};

// The convolution of what the weight is in float32, of which only the order of sums may differ.
TEST(NarrowConv, EqualsTheWidenedWeight) {
  for (DType dtype : {kFloat16, kBFloat16})
    for (bool last : {false, true})
      for (const NarrowCase& c : kNarrowCases) {
        Tensor x = randn(c.x);
        if (last) x = x.contiguous(MemoryFormat::ChannelsLast);
        const Tensor w = (randn(c.weight) * 0.1).to(dtype), bias = randn({c.weight[0]});
        ConvShape shape;
        for (int i = 0; i < 3; ++i) shape.stride[i] = c.stride, shape.padding[i] = c.padding;
        const Tensor y = conv_with_narrow_weight(x, w, bias, shape);
        if (!c.taken) {
          EXPECT_FALSE(y) << c.x;
          continue;
        }
        if (!y && c.x[2] >= 24) continue;  // an instruction set without Winograd's algorithm
        ASSERT_TRUE(y) << c.x;
        const Tensor want = conv_output(x.to(kFloat64), w.to(kFloat64), bias.to(kFloat64), shape);
        EXPECT_EQ(y.shape(), want.shape());
        EXPECT_LT(narrow_apart(y, want), 1e-4) << c.x << ' ' << c.weight << ' ' << dtype << ' ' << last;
      }
}

TEST(NarrowConv, LeavesTheRestToOthers) {
  const Tensor x = randn({1, 16, 4, 4}), w = randn({16, 16, 3, 3}).to(kFloat16);
  EXPECT_TRUE(conv_with_narrow_weight(x, w, {}, {.padding = {1, 1}}));
  EXPECT_FALSE(conv_with_narrow_weight(x, w.to(kFloat32), {}, {.padding = {1, 1}}));
  EXPECT_FALSE(conv_with_narrow_weight(x.to(kFloat16), w, {}, {.padding = {1, 1}}));
  EXPECT_FALSE(conv_with_narrow_weight(randn({1, 8, 4, 4}), w, {}, {.padding = {1, 1}}));
  EXPECT_FALSE(conv_with_narrow_weight(x, w.transpose(0, 1), {}, {.padding = {1, 1}}));
  EXPECT_FALSE(conv_with_narrow_weight(randn({1, 32, 4, 4}), w, {}, {.padding = {1, 1}, .groups = 2}));
}

}  // namespace
}  // namespace sf
