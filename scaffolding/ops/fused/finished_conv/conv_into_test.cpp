#include "scaffolding/ops/fused/finished_conv/conv_into.h"

#include <gtest/gtest.h>

#include "scaffolding/autograd/mode.h"
#include "scaffolding/ops/conv/kernel.h"
#include "scaffolding/ops/op_test.h"
#include "scaffolding/ops/ops.h"

namespace sf::test {

namespace {

double relative_error(const Tensor& got, const Tensor& want) {
  return amax(abs(got - want)).item() / amax(abs(want)).item();
}

bool equal(const Tensor& a, const Tensor& b) { return amax(abs(a - b)).item() == 0; }

Tensor wide(const Shape& sizes) { return to_channels_last(randn(sizes)); }

// Which this kernel is a form of: there is none below AVX2.
bool has_winograd() {
  for (int i = 0; i < conv_forward.count(DeviceType::CPU); ++i)
    if (std::string(conv_forward.entry(DeviceType::CPU, i).provider) == "winograd") return true;
  return false;
}
bool has_kernel() {
  const Tensor y = wide({1, 16, 16, 16});
  return conv2d_finished_into(y, wide({1, 16, 16, 16}), randn({16, 16, 3, 3}), {});
}

}  // namespace

TEST(FinishedConv, is_the_composition_within_wider_pictures) {
  autograd::NoGrad off;
  manual_seed(5);
  ASSERT_EQ(has_kernel(), has_winograd());
  if (!has_winograd()) return;  // nothing was written, and callers compose it
  struct Case {
    int64_t batch, in, out, height, width;
  };
  for (const Case& c : {Case{1, 16, 16, 9, 10}, {2, 64, 32, 17, 23}, {1, 160, 64, 40, 33}, {1, 32, 48, 8, 8}}) {
    Tensor features = wide({c.batch, c.in + c.out + 16, c.height, c.width}), before = features.clone();
    const Tensor x = features.narrow(1, 0, c.in), y = features.narrow(1, c.in, c.out), w = randn({c.out, c.in, 3, 3}),
                 b = randn({c.out}), slopes = randn({c.out}), residual = wide({c.batch, c.out + 32, c.height, c.width}),
                 second = wide({c.batch, c.out, c.height, c.width});
    const Tensor conv = conv2d(x.contiguous(), w, b, {1}, 1), r = residual.narrow(1, 16, c.out);
    ASSERT_TRUE(conv2d_finished_into(y, x, w, b, {.slopes = slopes}));
    EXPECT_LT(relative_error(y, prelu(conv, slopes)), 1e-5);
    ASSERT_TRUE(
        conv2d_finished_into(y, x, w, b, {.scale = 0.2, .residual = r, .residual_scale = -3, .second = second}));
    EXPECT_LT(relative_error(y, conv * 0.2 + r * -3 + second), 1e-5);
    // of the others not a bit
    EXPECT_TRUE(equal(features.narrow(1, 0, c.in), before.narrow(1, 0, c.in)));
    EXPECT_TRUE(equal(features.narrow(1, c.in + c.out, 16), before.narrow(1, c.in + c.out, 16)));
  }
}

TEST(FinishedConv, adds_to_what_it_overwrites_and_enlarges_what_it_reads) {
  autograd::NoGrad off;
  manual_seed(6);
  ASSERT_EQ(has_kernel(), has_winograd());
  if (!has_winograd()) return;  // nothing was written, and callers compose it
  const Tensor x = wide({1, 32, 14, 19}), w = randn({32, 32, 3, 3}), b = randn({32}), slopes = full({32}, 0.2);
  Tensor y = wide({1, 32, 14, 19});
  const Tensor want = conv2d(x, w, b, {1}, 1) + y * 2;
  ASSERT_TRUE(conv2d_finished_into(y, x, w, b, {.residual = y, .residual_scale = 2}));
  EXPECT_LT(relative_error(y, want), 1e-5);
  const Tensor twice = wide({1, 32, 28, 38});
  ASSERT_TRUE(conv2d_finished_into(twice, x, w, b, {.slopes = slopes, .repeat = 2}));
  EXPECT_LT(relative_error(twice, leaky_relu(conv2d(interpolate(x, {}, Floats{2, 2}), w, b, {1}, 1), 0.2)), 1e-5);
}

TEST(FinishedConv, leaves_to_others_what_it_cannot) {
  const Tensor y = wide({1, 16, 16, 16}), before = y.clone(), x = wide({1, 16, 16, 16}), w = randn({16, 16, 3, 3});
  Tensor trained = w.clone();
  trained.requires_grad_();
  EXPECT_FALSE(conv2d_finished_into(y, x, trained, {}));  // a gradient is wanted
  autograd::NoGrad off;
  EXPECT_FALSE(conv2d_finished_into(y, x.to(kBFloat16), w.to(kBFloat16), {}));
  EXPECT_FALSE(conv2d_finished_into(y, x.contiguous(), w, {}));                        // rows of one channel
  EXPECT_FALSE(conv2d_finished_into(y.narrow(1, 0, 5), x, randn({5, 16, 3, 3}), {}));  // odd channels
  EXPECT_TRUE(equal(y, before));
  EXPECT_THROW(conv2d_finished_into(y, wide({1, 8, 16, 16}), w, {}), ValueError);
  EXPECT_THROW(conv2d_finished_into(y.narrow(2, 0, 8), x, w, {}), ValueError);
  EXPECT_THROW(conv2d_finished_into(y, x, w, {}, {.slopes = randn({3})}), ValueError);
  EXPECT_THROW(conv2d_finished_into(y, x, w, {}, {.second = randn({1, 16, 8, 16})}), ValueError);
}

}  // namespace sf::test
