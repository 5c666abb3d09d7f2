#include "scaffolding/ops/op_test.h"

#include <cmath>
#include <cstring>

#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/quantize/fp8.h"
#include "scaffolding/ops/quantize/nf4.h"
#include "scaffolding/ops/view/view.h"

namespace sf::test {

// Where two codes are equally near, rounding the input to 16 bits or the order of a product's factors decides: codes
// are compared in float32 and float64 only. torch has none of these ops;
// tests/python/ops/test_quantize.py compares with bitsandbytes.
SF_OP_TEST(quantize_nf4) {
  sample(randn({5, 64})).no_low_precision().no_golden();
  sample(randn({3, 77})).no_low_precision().no_golden();  // ends within a block and a byte
  sample(randn({40, 33}).transpose(0, 1), 32).no_low_precision().no_golden();
  sample(zeros({70}, kFloat64), 128).no_low_precision().no_golden();
  sample(randn({0, 4})).no_low_precision().no_golden();
  rejects("blocksize must be a power of two from 32 to 4096, got 48", randn({64}), 48);
  rejects("quantize_nf4: input", randint(0, 4, {64}));
}
SF_OP_TEST(dequantize_nf4) {
  sample(randint(0, 256, {2048, 1}, kUInt8), rand({64}), Shape{64, 64}).no_golden();  // whole warps, and a rest
  sample(randint(0, 256, {1083, 1}, kUInt8), rand({34}), Shape{2165}, kBFloat16).no_golden();
  sample(randint(0, 256, {600, 1}, kUInt8), randint(0, 256, {19}, kUInt8), Shape{30, 40}, kFloat16, 64, rand({1}),
         rand({}))
      .no_golden();
  sample(randint(0, 256, {160}, kUInt8), rand({10}), Shape{320}, kFloat64, 32).no_golden();
  sample(randint(0, 256, {0}, kUInt8), rand({0}), Shape{3, 0}).no_golden();
  rejects("a tensor of [8, 8] needs 32 bytes of codes, got [31]", randint(0, 256, {31}, kUInt8), rand({1}),
          Shape{8, 8});
  rejects("absmax must have 2 element(s), got [1]", randint(0, 256, {64}, kUInt8), rand({1}), Shape{128});
  rejects("nested_absmax and offset belong to an absmax of uint8", randint(0, 256, {64}, kUInt8), rand({2}), Shape{128},
          none, 64, rand({1}), rand({}));
  rejects("input must be uint8, got int64", randint(0, 256, {64}), rand({2}), Shape{128});
}
SF_OP_TEST(quantize_blockwise) {
  sample(randn({5, 100})).no_low_precision().no_golden();
  sample(randn({3, 300}), 64).no_low_precision().no_golden();
  rejects("blocksize must be a power of two", randn({64}), 0);
}
SF_OP_TEST(dequantize_blockwise) {
  sample(randint(0, 256, {5, 100}, kUInt8), rand({2})).no_golden();
  sample(randint(0, 256, {300}, kUInt8), rand({5}), kBFloat16, 64).no_golden();
  rejects("absmax must have 2 element(s)", randint(0, 256, {5, 100}, kUInt8), rand({3}));
}
// Gradients go to input and bias alone, which tests/python/ops/test_quantize.py compares with those of the dequantised
// weight; one for absmax is refused.
SF_OP_TEST(linear_nf4) {
  sample(randn({3, 5, 32}), randint(0, 256, {192, 1}, kUInt8), rand({6}), none, none, randn({12}), 12)
      .no_golden()
      .no_grad();
  sample(randn({4, 20}), randint(0, 256, {70, 1}, kUInt8), randint(0, 256, {3}, kUInt8), rand({1}), rand({}), none, 7)
      .no_golden()
      .no_grad();
  rejects("a tensor of [12, 30] needs 180 bytes of codes", randn({5, 30}), randint(0, 256, {192, 1}, kUInt8), rand({6}),
          none, none, none, 12);
}
SF_OP_TEST(quantize_fp8) {
  sample(randn({6, 48})).no_low_precision().no_golden();
  sample(randn({6, 33}), kFloat8E5M2, true).no_low_precision().no_golden();
  sample(randn({2, 3, 500}), none, true).no_low_precision().no_golden();
  sample(zeros({4, 16}, kFloat64), none, true).no_low_precision().no_golden();
  sample(randn({0, 16})).no_low_precision().no_golden();
  rejects("dtype must be float8_e4m3fn or float8_e5m2, got bfloat16", randn({4}), kBFloat16);
}
SF_OP_TEST(dequantize_fp8) {
  sample(std::get<0>(quantize_fp8(randn({6, 48}))), rand({})).no_golden();
  sample(std::get<0>(quantize_fp8(randn({6, 33}), kFloat8E5M2)), rand({6, 1}), kBFloat16).no_golden();
  sample(std::get<0>(quantize_fp8(randn({2, 3, 32}))), rand({2, 3, 1}), kFloat16).no_golden();
  rejects("scale must have one element, or shape [6, 1] for each row, got [6]",
          std::get<0>(quantize_fp8(randn({6, 48}))), rand({6}));
  rejects("input must be float8_e4m3fn or float8_e5m2", randn({6}), rand({}));
}
SF_OP_TEST(scaled_mm) {
  auto q = [&](const Shape& size, DType t = kFloat8E4M3) { return std::get<0>(quantize_fp8(randn(size), t)); };
  sample(q({20, 32}), q({48, 32}).t(), rand({}), rand({}), none, kFloat32).no_golden();
  sample(q({20, 32}), q({48, 32}, kFloat8E5M2).t(), rand({20, 1}), rand({1, 48}), randn({48}), kFloat32).no_golden();
  sample(q({5, 30}), q({30, 7}), rand({}), rand({1, 7}), randn({7})).no_golden();  // no GPU's own product
  sample(q({20, 32}), q({48, 32}).t(), rand({}), rand({}), none, kFloat32, true).no_golden();
  rejects("needs input [M, K] and mat2 [K, N]", q({20, 32}), q({48, 32}), rand({}), rand({}));
  rejects("scale_b must have one element or shape [1, 48], got [48]", q({20, 32}), q({48, 32}).t(), rand({}),
          rand({48}));
}
SF_OP_TEST(linear_fp8) {
  auto q = [&](const Shape& size) { return std::get<0>(quantize_fp8(randn(size))); };
  sample(randn({3, 5, 32}), q({48, 32}), rand({48, 1}), randn({48})).no_golden().no_grad();
  sample(randn({5, 20}), q({7, 20}), rand({})).no_golden().no_grad();
  // steps of the quantised input
  sample(randn({20, 32}), q({48, 32}), rand({}), randn({48}), true).no_golden().no_grad().no_low_precision();
  sample(randn({20, 32}), q({48, 32}), rand({48, 1}), none, true).no_golden().no_grad().no_low_precision();
  rejects("needs input [..., K] and weight [N, K]", randn({5, 21}), q({7, 20}), rand({}));
}

// Every byte, by vectors and by the last few of a row.
TEST(DequantizeFp8, HasTheNumberOfEveryCode) {
  for (DType t : {kFloat8E4M3, kFloat8E5M2}) {
    Tensor q = empty({256}, t);
    for (int i = 0; i < 256; ++i) static_cast<uint8_t*>(q.data_ptr())[i] = uint8_t(i);
    for (int64_t columns : {256, 1}) {
      const Tensor y = dequantize_fp8(q.view({256 / columns, columns}), ones({}), kFloat32);
      for (int i = 0; i < 256; ++i) {
        const uint8_t code = uint8_t(i);
        float want;
        if (t == kFloat8E4M3) {
          Float8E4M3 x;
          std::memcpy(&x, &code, 1);
          want = to_float(x);
        } else {
          Float8E5M2 x;
          std::memcpy(&x, &code, 1);
          want = to_float(x);
        }
        const float got = static_cast<const float*>(y.data_ptr())[i];
        if (std::isnan(want)) EXPECT_TRUE(std::isnan(got)) << i;
        else EXPECT_EQ(got, want) << i;
      }
    }
  }
}

}  // namespace sf::test
