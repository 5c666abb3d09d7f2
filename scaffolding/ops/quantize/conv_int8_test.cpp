#include "scaffolding/ops/quantize/conv_int8.h"

#include <cmath>

#include "scaffolding/core/provider.h"
#include "scaffolding/io/test_folder.h"
#include "scaffolding/ops/int_mm/kernel.h"
#include "scaffolding/ops/op_test.h"
#include "scaffolding/ops/ops.h"

namespace sf::test {

SF_OP_TEST(quantize_conv_int8) {
  sample(randn({5, 4, 3, 3})).no_low_precision().no_golden();
  sample(randn({3, 7, 1, 1})).no_low_precision().no_golden();
  rejects("needs weight [O, C, KH, KW] that is not empty, got [2, 3]", randn({2, 3}));
  rejects("not finite", full({2, 3, 1, 1}, INFINITY));
}
SF_OP_TEST(dequantize_conv_int8) {
  sample(randint(-127, 128, {6, 3, 3, 4}, kInt8), rand({6})).no_golden();
  sample(randint(-127, 128, {2, 1, 2, 5}, kInt8), rand({}), kBFloat16, 1.0).no_golden();
  rejects("scale must have one element, or shape [6] for each output channel, got [5]",
          randint(0, 9, {6, 1, 1, 4}, kInt8), rand({5}));
}
SF_OP_TEST(conv2d_int8) {
  auto codes = [&](int64_t o, int64_t kh, int64_t kw, int64_t c) { return randint(-127, 128, {o, kh, kw, c}, kInt8); };
  // no_low_precision: steps of the quantised input
  auto exactly = [](Sample& s) { s.no_golden().no_grad().no_low_precision(); };
  exactly(sample(randn({2, 5, 9, 7}), codes(6, 3, 3, 5), rand({6}), randn({6}), Shape{1}, Shape{1}));
  exactly(sample(randn({1, 16, 8, 8}), codes(24, 1, 1, 16), rand({24})));
  exactly(sample(randn({3, 4, 11, 10}), codes(5, 3, 2, 4), rand({}), none, Shape{2, 1}, Shape{2, 1}, Shape{1, 3}, 1.0));
  exactly(sample(randn({4, 6, 6}), codes(3, 3, 3, 4), rand({3}), none, Shape{2}, Shape{1}));
  exactly(sample(zeros({1, 4, 5, 5}), codes(3, 3, 3, 4), rand({3}), randn({3})));
  rejects("weight must be int8", randn({1, 4, 5, 5}), randn({3, 3, 3, 4}), rand({3}));
  rejects("wants 5 input channels, got input [1, 4, 5, 5]", randn({1, 4, 5, 5}), codes(3, 3, 3, 5), rand({3}));
  rejects("does not fit the padded input", randn({1, 4, 2, 2}), codes(3, 3, 3, 4), rand({3}));
  rejects("needs input [N, C, H, W] or [C, H, W]", randn({4, 5}), codes(3, 3, 3, 4), rand({3}));
  rejects("not finite", full({1, 4, 5, 5}, NAN), codes(3, 3, 3, 4), rand({3}));
  rejects("stride must be at least 1", randn({1, 4, 5, 5}), codes(3, 3, 3, 4), rand({3}), none, Shape{0});
}

namespace {

// The sample's codes, as numbers.
Tensor codes_of(const Tensor& x) {
  const Tensor rows = x.reshape({x.size(0), x.numel() / x.size(0)});
  auto [codes, most] = quantize_int8(rows);
  return to_dtype(codes.view(x.shape()), kFloat64);
}

// Whole numbers convolved in float64, where they are exact, then scaled once: to the bit, by every kernel.
TEST(ConvInt8, SumsAreExactOnEveryInstructionSet) {
  manual_seed(5);
  struct Case {
    Shape x, w;  // w: [O, KH, KW, C]
    int64_t stride, padding;
  };
  for (const Case& c : {Case{{2, 40, 21, 19}, {33, 3, 3, 40}, 1, 1}, Case{{1, 64, 16, 16}, {48, 1, 1, 64}, 1, 0},
                        Case{{1, 300, 30, 40}, {20, 3, 3, 300}, 2, 1}}) {
    const Tensor x = randn(c.x) * 3.0, bias = randn({c.w[0]});
    auto [w, most] = quantize_conv_int8(randn({c.w[0], c.w[3], c.w[1], c.w[2]}));
    const Tensor sums = conv2d(codes_of(x), permute(to_dtype(w, kFloat64), {0, 3, 1, 2}), {}, {c.stride}, c.padding),
                 largest = amax(abs(x), Shape{1, 2, 3}, true);
    const Tensor want = to_dtype(sums, kFloat32) * (largest * double(float(kInt8Unit))) *
                            (most * double(float(kInt8Unit))).view({1, -1, 1, 1}) +
                        bias.view({1, -1, 1, 1});
    for (int i = 0; i < int_mm_kernel.count(Device::CPU); ++i) {
      const std::string label = provider_label(int_mm_kernel.entry(Device::CPU, i));
      pin_provider("*", label);
      const Tensor got = conv2d_int8(x, w, most, bias, {c.stride}, {c.padding});
      unpin_providers();
      ASSERT_EQ(got.shape(), want.shape());
      EXPECT_EQ(amax(abs(got - want)).item(), 0) << label << ' ' << str(c.x);
    }
  }
}

Tensor channels_last(const Tensor& x) { return x.contiguous(MemoryFormat::ChannelsLast); }
double relative(const Tensor& got, const Tensor& want) {
  return (norm(got.to(kFloat64) - want.to(kFloat64)) / norm(want.to(kFloat64))).item();
}

// Codes of a number halfway between two may be either: sums of few of them differ.
TEST(GroupNormSiluConvInt8, IsTheNormAndThenTheConvolution) {
  manual_seed(7);
  for (DType t : {kFloat32, kBFloat16})
    for (int64_t samples : {1, 3}) {
      const int64_t in = 40, out = 24;
      const Tensor x = channels_last(randn({samples, in, 9, 11}) * 2.0 + 0.5).to(t), gain = randn({in}),
                   shift = randn({in}), bias = randn({out});
      auto [w, most] = quantize_conv_int8(randn({out, in, 3, 3}));
      const Tensor plain = conv2d_int8(group_norm_silu(x.to(kFloat32), 8, gain, shift), w, most, bias, {1}, {1});
      for (const Tensor& beside : {Tensor(), randn(plain.shape()).to(t), randn({samples, out, 1, 1}).to(t)}) {
        const Tensor got = group_norm_silu_conv2d_int8(x, 8, gain, shift, 1e-5, w, most, bias, beside, {1}, {1});
        ASSERT_TRUE(got);
        EXPECT_EQ(got.dtype(), t);
        EXPECT_LT(relative(got, beside ? plain + beside : plain), t == kFloat32 ? 1e-3 : 4e-3);
      }
    }
}

// Results that are all small, or below zero: the largest of them is not that of the largest argument.
TEST(GroupNormSiluConvInt8, FindsTheLargestMagnitudeBelowZeroToo) {
  manual_seed(8);
  const Tensor x = channels_last(randn({2, 16, 6, 5}));
  auto [w, most] = quantize_conv_int8(randn({8, 16, 1, 1}));
  for (double offset : {0.0, -2.0, -9.0}) {
    const Tensor gain = full({16}, 0.1), shift = full({16}, offset);
    const Tensor want = conv2d_int8(group_norm_silu(x, 4, gain, shift), w, most);
    EXPECT_LT(relative(group_norm_silu_conv2d_int8(x, 4, gain, shift, 1e-5, w, most), want), 1e-2) << offset;
  }
}

TEST(GroupNormSiluConvInt8, IsLeftToOthersWhereNoKernelIs) {
  auto [w, most] = quantize_conv_int8(randn({8, 16, 1, 1}));
  const Tensor ones = full({16}, 1.0), x = channels_last(randn({1, 16, 4, 4}));
  EXPECT_FALSE(group_norm_silu_conv2d_int8(randn({1, 16, 4, 4}), 4, ones, ones, 1e-5, w, most));
  EXPECT_FALSE(group_norm_silu_conv2d_int8(x.to(kFloat64), 4, ones, ones, 1e-5, w, most));
  EXPECT_FALSE(group_norm_silu_conv2d_int8(x.detach().requires_grad_(), 4, ones, ones, 1e-5, w, most));
  SF_EXPECT_ERROR(ValueError, "input has numbers that are not finite",
                  group_norm_silu_conv2d_int8(x * double(INFINITY), 4, ones, ones, 1e-5, w, most));
  SF_EXPECT_ERROR(ValueError, "num_groups must divide channels, got num_groups=3",
                  group_norm_silu_conv2d_int8(x, 3, ones, ones, 1e-5, w, most));
}

TEST(ConvInt8, GradientsPassThroughTheDequantisedWeight) {
  manual_seed(6);
  const Tensor x = randn({2, 6, 9, 8}).requires_grad_(), bias = randn({10}).requires_grad_();
  auto [w, most] = quantize_conv_int8(randn({10, 6, 3, 3}));
  const Tensor y = conv2d_int8(x, w, most, bias, {2}, {1}), step = randn(y.shape());
  y.backward(step);
  const Tensor dense = x.detach().clone().requires_grad_();
  conv2d(dense, dequantize_conv_int8(w, most), {}, {2}, 1).backward(step);
  EXPECT_EQ(amax(abs(x.grad() - dense.grad())).item(), 0);
  EXPECT_LT(amax(abs(bias.grad() - sum(step, Shape{0, 2, 3}))).item(), 1e-5);
}

}  // namespace
}  // namespace sf::test
