#include "scaffolding/ops/fused/filtered_snake/snake.h"

#include <gtest/gtest.h>

#include "scaffolding/autograd/mode.h"
#include "scaffolding/ops/op_test.h"
#include "scaffolding/ops/ops.h"

namespace sf::test {

namespace {

double off(const Tensor& got, const Tensor& want) {
  return amax(abs(got.to(kFloat64) - want)).item() / amax(abs(want)).item();
}

// In float64, where there is no kernel for the whole.
Tensor composed(const Tensor& x, const Tensor& f, const Tensor& a, const Tensor& up, const Tensor& down,
                int64_t ratio) {
  auto wide = [](const Tensor& t) { return t.to(kFloat64); };
  return filtered_snake(wide(x), wide(f), wide(a), wide(up), wide(down), ratio);
}

}  // namespace

TEST(FilteredSnake, is_the_composition) {
  autograd::NoGrad none;
  manual_seed(11);
  struct Case {
    int64_t batch, channels, length;
  };
  for (const Case& c : {Case{1, 16, 200}, {2, 24, 64}, {1, 19, 65}, {3, 5, 1}, {1, 8, 2}, {1, 33, 7}, {1, 1, 129}})
    for (DType dtype : {kFloat32, kBFloat16, kFloat16}) {
      const Tensor x = to_channels_last(randn({c.batch, c.channels, c.length})).to(dtype), f = exp(randn({c.channels})),
                   a = exp(randn({c.channels})), up = randn({12}), down = randn({12});
      const Tensor y = filtered_snake(x, f, a, up, down);
      EXPECT_EQ(y.dtype(), dtype);
      EXPECT_LT(off(y, composed(x, f, a, up, down, 2)), dtype == kFloat32   ? 1e-5
                                                        : dtype == kFloat16 ? 1e-3
                                                                            : 1e-2)
          << c.channels << " " << c.length << " " << name(dtype);
    }
}

TEST(FilteredSnake, takes_any_layout_and_filter) {
  autograd::NoGrad none;
  manual_seed(12);
  const Tensor x = randn({2, 6, 50}), f = exp(randn({6})), a = exp(randn({6}));
  for (auto [ratio, taps] : {std::pair<int64_t, int64_t>{2, 12}, {2, 6}, {3, 15}, {1, 5}, {2, 13}}) {
    const Tensor up = randn({taps}), down = randn({taps}), y = filtered_snake(x, f, a, up, down, ratio);
    EXPECT_EQ(y.shape(), x.shape());
    EXPECT_LT(off(y, composed(x, f, a, up, down, ratio)), 1e-5) << ratio << " " << taps;
  }
  EXPECT_THROW(filtered_snake(randn({6, 50}), f, a, randn({12}), randn({12})), ValueError);
  EXPECT_THROW(filtered_snake(x, f, randn({5}), randn({12}), randn({12})), ValueError);
  EXPECT_THROW(filtered_snake(x, f, a, randn({2}), randn({2}), 3), ValueError);
}

TEST(FilteredSnake, has_gradients) {
  manual_seed(13);
  const Tensor up = randn({12}), down = randn({12});
  Tensor x = randn({1, 3, 10}), f = exp(randn({3})), a = exp(randn({3}));
  for (Tensor* t : {&x, &f, &a}) t->requires_grad_();
  const Tensor y = filtered_snake(x, f, a, up, down);
  autograd::NoGrad none;
  EXPECT_LT(off(y.detach(), composed(x.detach(), f.detach(), a.detach(), up, down, 2)), 1e-5);
  EXPECT_TRUE(y.requires_grad());
}

// A stride's samples as channels of one convolution, beside the kernel of gradients.
TEST(ConvTranspose, of_a_signal_is_the_same_on_the_tape_and_off) {
  manual_seed(14);
  struct Case {
    int64_t length, taps, stride, padding, extra;
  };
  for (const Case& c : {Case{9, 16, 6, 5, 0},
                        {9, 15, 5, 5, 0},
                        {7, 4, 2, 1, 0},
                        {7, 3, 2, 0, 1},
                        {7, 3, 2, 1, 1},
                        {5, 2, 4, 0, 0},
                        {1, 7, 3, 2, 0},
                        {4, 1, 3, 0, 2}})
    for (bool last : {false, true})
      for (int64_t batch : {1, 2}) {
        Tensor w = randn({5, 3, c.taps});
        const Tensor plain = randn({batch, 5, c.length}), x = last ? to_channels_last(plain) : plain, b = randn({3});
        const Tensor off_tape = conv_transpose1d(x, w, b, {c.stride}, {c.padding}, {c.extra});
        w.requires_grad_();
        const Tensor want = conv_transpose1d(x, w, b, {c.stride}, {c.padding}, {c.extra}).detach();
        ASSERT_EQ(off_tape.shape(), want.shape()) << c.taps << " " << c.stride;
        EXPECT_LT(off(off_tape, want.to(kFloat64)), 1e-5) << c.taps << " " << c.stride;
        if (c.length == 1) continue;  // of one sample any layout is both
        EXPECT_TRUE(off_tape.is_contiguous(last ? MemoryFormat::ChannelsLast : MemoryFormat::Contiguous));
      }
}

}  // namespace sf::test
