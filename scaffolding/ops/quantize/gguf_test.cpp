#include "scaffolding/ops/quantize/gguf.h"

#include <cstring>

#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/op_test.h"
#include "scaffolding/ops/view/view.h"

namespace sf::test {

// What blocks mean is compared with the gguf package by tests/python/ops/test_gguf.py. Rounding the input to 16 bits
// decides about codes, which are compared in float32 and float64 only.
SF_OP_TEST(quantize_gguf) {
  for (auto& f : gguf_formats())
    if (f.blocks) sample(randn({3, 256}), std::string(f.name)).no_low_precision().no_golden();
  sample(randn({64, 5}).transpose(0, 1), "q8_0").no_low_precision().no_golden();
  sample(zeros({2, 256}), "Q4_K").no_low_precision().no_golden();
  sample(randn({0, 32}), "Q4_0").no_low_precision().no_golden();
  rejects("rows of Q4_K are whole blocks of 256, got input [2, 128]", randn({2, 128}), "Q4_K");
  rejects("format must be one of", randn({2, 128}), "F16");
  rejects("not finite, or too large", full({2, 32}, 1e30), "Q5_1");
}
SF_OP_TEST(dequantize_gguf) {
  sample(quantize_gguf(randn({6, 64}), "Q8_0"), "Q8_0", Shape{6, 64}).no_golden();
  sample(quantize_gguf(randn({5, 256}), "Q3_K"), "q3_k", Shape{1280}, kBFloat16).no_golden();
  sample(quantize_gguf(randn({2, 288}), "IQ4_NL"), "IQ4_NL", Shape{32, 2, 3, 3}, kFloat16).no_golden();
  sample(quantize_gguf(randn({4, 256}), "Q6_K"), "Q6_K", Shape{4, 256}, kFloat64).no_golden();
  sample(randint(0, 256, {0}, kUInt8), "Q4_1", Shape{3, 0}).no_golden();
  rejects("a tensor of [2, 32] needs 68 bytes", randint(0, 256, {67}, kUInt8), "Q8_0", Shape{2, 32});
  rejects("input must be uint8", randn({68}), "Q8_0", Shape{2, 32});
}
SF_OP_TEST(linear_gguf) {
  auto w = [&](int64_t n, int64_t k, const char* format) { return quantize_gguf(randn({n, k}), format); };
  sample(randn({3, 5, 64}), w(12, 64, "Q8_0"), randn({12}), "Q8_0").no_golden();
  sample(randn({1, 1280}), w(7, 1280, "Q4_K"), none, "Q4_K").no_golden();
  sample(randn({17, 96}), w(33, 96, "Q5_0"), randn({33}), "Q5_0", "gelu").no_golden();
  sample(randn({2, 20, 256}), w(16, 256, "Q2_K"), none, "Q2_K", "silu", randn({2, 20, 16})).no_golden();
  sample(randn({32, 4}).transpose(0, 1), w(3, 32, "Q4_1"), none, "Q4_1", "none", randn({4, 3})).no_golden();
  sample(randn({0, 32}), w(3, 32, "Q4_0"), none, "Q4_0").no_golden();
  // steps of the quantised input
  sample(randn({3, 64}), w(12, 64, "Q4_0"), randn({12}), "Q4_0", "none", none, true)
      .no_golden()
      .no_grad()
      .no_low_precision();
  rejects("needs input [..., K] and weight [N, K / 32 * 34] of Q8_0, got [2, 96] and [12, 68]", randn({2, 96}),
          w(12, 64, "Q8_0"), none, "Q8_0");
  rejects("activation must be none, relu", randn({2, 64}), w(12, 64, "Q8_0"), none, "Q8_0", "tanh");
  rejects("linear_gguf: residual", randn({2, 64}), w(12, 64, "Q8_0"), none, "Q8_0", "none", randn({2, 11}));
}

TEST(GgufFormats, RowsTakeTheNextFormatThatFits) {
  auto fit = [](const char* name, int64_t row) {
    const GgufFormat* f = fitting_gguf_blocks(gguf_blocks("test", name), row);
    return f ? std::string(f->name) : std::string();
  };
  EXPECT_EQ(fit("q4_K", 512), "Q4_K");
  EXPECT_EQ(fit("q4_K", 320), "Q4_0");
  EXPECT_EQ(fit("q5_K", 320), "Q5_0");
  EXPECT_EQ(fit("q6_K", 640), "Q8_0");
  EXPECT_EQ(fit("q2_K", 96), "Q4_0");
  EXPECT_EQ(fit("q8_0", 24), "");
}

}  // namespace sf::test
