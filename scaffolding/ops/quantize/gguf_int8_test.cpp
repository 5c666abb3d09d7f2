// Products of GGUF's blocks with int8 activations, against sums in float64 of the numbers that they stand for.
#include "scaffolding/ops/quantize/gguf_int8.h"

#include <gtest/gtest.h>

#include <cmath>

#include "scaffolding/core/provider.h"
#include "scaffolding/io/test_folder.h"
#include "scaffolding/ops/ops.h"
#include "scaffolding/ops/quantize/gguf.h"
#include "scaffolding/ops/quantize/int8_rows.h"

namespace sf::test {
namespace {

// Rows in int8, block by block, in float64 again.
Tensor rounded(const Tensor& x, int64_t block) {
  auto [codes, most] = quantize_int8(x.reshape({x.numel() / block, block}));
  return (codes.to(kFloat64) * (most * double(float(kInt8Unit))).to(kFloat64).unsqueeze(-1)).view(x.shape());
}

class GgufInt8 : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { manual_seed(11); }
};

TEST_P(GgufInt8, is_the_product_of_what_both_stand_for) {
  const GgufFormat& f = gguf_blocks("test", GetParam());
  const int64_t n = 37, k = f.block == 256 ? 1792 : 1760;  // a ragged last strip, and a last part of seven blocks
  const Tensor blocks = quantize_gguf(randn({n, k}), GetParam()), bias = randn({n}), all = randn({150, k});
  const Tensor dense = dequantize_gguf(blocks, GetParam(), {n, k}, kFloat64);
  const Tensor whole = linear_gguf(all, blocks, bias, GetParam(), "none", {}, true);
  const Tensor want = linear(rounded(all, f.block), dense, bias.to(kFloat64));
  const Tensor most = linear(abs(rounded(all, f.block)), abs(dense), abs(bias).to(kFloat64));
  EXPECT_LE(amax(abs(whole.to(kFloat64) - want) / most).item(), 2e-6);
  // The same bits however many rows there are.
  for (int64_t m : {1, 3, 4, 9, 64, 65})
    EXPECT_EQ(
        amax(abs(linear_gguf(all.slice(0, 0, m), blocks, bias, GetParam(), "none", {}, true) - whole.slice(0, 0, m)))
            .item(),
        0)
        << m;
}

TEST_P(GgufInt8, has_the_same_bits_on_every_instruction_set) {
  const GgufFormat& f = gguf_blocks("test", GetParam());
  const int64_t n = 45, k = f.block == 256 ? 768 : 800;
  const Tensor blocks = quantize_gguf(randn({n, k}), GetParam()), x = randn({29, k}) * 3.0;
  Tensor first;
  for (int i = 0; i < gguf_int8_product.count(Device::CPU); ++i) {
    const std::string label = provider_label(gguf_int8_product.entry(Device::CPU, i));
    pin_provider("gguf_int8_product", label);
    const Tensor y = linear_gguf(x, blocks, {}, GetParam(), "none", {}, true);
    unpin_providers();
    if (!first) first = y;
    EXPECT_EQ(amax(abs(y - first)).item(), 0) << label;
  }
}

// Codes, scales and minima as large as a file can have them, beside activations that are all 127.
TEST_P(GgufInt8, holds_the_largest_integers) {
  const GgufFormat& f = gguf_blocks("test", GetParam());
  const int64_t n = 16, k = 512;
  Tensor blocks = randint(0, 256, {n, k / f.block * f.bytes}, {}, kUInt8);
  auto* bytes = static_cast<uint8_t*>(blocks.data_ptr());
  for (int64_t i = 0; i < blocks.numel(); ++i)
    if (i / (k / f.block * f.bytes) % 2 == 0) bytes[i] = i % 4 < 2 ? 0x80 : 0xff;
  // Scales in float16 of about 1.
  const int64_t at = f.name == "Q2_K" ? 80 : f.name == "Q3_K" ? 108 : f.name == "Q6_K" ? 208 : 0;
  const bool two = f.name == "Q4_1" || f.name == "Q5_1" || f.name == "Q2_K" || f.name == "Q4_K" || f.name == "Q5_K";
  for (int64_t b = 0; b < n * k / f.block; ++b)
    for (int i = 0; i < (two ? 2 : 1); ++i)
      bytes[b * f.bytes + at + 2 * i] = 0x12, bytes[b * f.bytes + at + 2 * i + 1] = 0x3c;
  const Tensor dense = dequantize_gguf(blocks, GetParam(), {n, k}, kFloat64);
  for (double sign : {1.0, -1.0}) {
    const Tensor x = full({9, k}, sign);
    const Tensor got = linear_gguf(x, blocks, {}, GetParam(), "none", {}, true);
    const Tensor want = linear(rounded(x, f.block), dense), most = linear(abs(rounded(x, f.block)), abs(dense));
    EXPECT_LE(amax(abs(got.to(kFloat64) - want) / most).item(), 2e-6);
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, GgufInt8,
                         testing::Values("Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "IQ4_NL", "Q2_K", "Q3_K", "Q4_K",
                                         "Q5_K", "Q6_K"),
                         [](const auto& info) { return info.param; });

TEST(GgufInt8Refusals, WhatIsNotFinite) {
  const Tensor w = quantize_gguf(randn({4, 64}), "Q8_0");
  Tensor x = randn({3, 64});
  x.select(0, 1).fill_(NAN);
  SF_EXPECT_ERROR(ValueError, "linear_gguf: input has numbers that are not finite",
                  linear_gguf(x, w, {}, "Q8_0", "none", {}, true));
}

}  // namespace
}  // namespace sf::test
