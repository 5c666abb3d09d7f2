#include "scaffolding/ops/quantize/int8_rows.h"

#include <algorithm>
#include <cmath>

#include "scaffolding/core/provider.h"
#include "scaffolding/ops/op_test.h"
#include "scaffolding/ops/ops.h"
#include "scaffolding/ops/quantize/fp4.h"
#include "scaffolding/ops/quantize/int8_kernel.h"

namespace sf::test {

// tests/python/ops/test_quantize.py compares codes with bitsandbytes'. Rounding the input to 16 bits, or the order of a
// product's factors, decides where two codes are equally near: those are compared in float32 and float64 only.
SF_OP_TEST(quantize_fp4) {
  sample(randn({5, 64})).no_low_precision().no_golden();
  sample(randn({3, 77})).no_low_precision().no_golden();  // ends within a block and a byte
  sample(zeros({70}, kFloat64), 128).no_low_precision().no_golden();
  sample(randn({0, 4})).no_low_precision().no_golden();
  rejects("blocksize must be a power of two from 32 to 4096, got 48", randn({64}), 48);
}
SF_OP_TEST(dequantize_fp4) {
  sample(randint(0, 256, {2048, 1}, kUInt8), rand({64}), Shape{64, 64}).no_golden();
  sample(randint(0, 256, {1083, 1}, kUInt8), rand({34}), Shape{2165}, kBFloat16).no_golden();
  sample(randint(0, 256, {600, 1}, kUInt8), randint(0, 256, {19}, kUInt8), Shape{30, 40}, kFloat16, 64, rand({1}),
         rand({}))
      .no_golden();
  rejects("a tensor of [8, 8] needs 32 bytes of codes, got [31]", randint(0, 256, {31}, kUInt8), rand({1}),
          Shape{8, 8});
}
SF_OP_TEST(linear_fp4) {
  sample(randn({3, 5, 32}), randint(0, 256, {192, 1}, kUInt8), rand({6}), none, none, randn({12}), 12)
      .no_golden()
      .no_grad();
  sample(randn({20, 20}), randint(0, 256, {70, 1}, kUInt8), randint(0, 256, {3}, kUInt8), rand({1}), rand({}), none, 7)
      .no_golden()
      .no_grad();
  rejects("a tensor of [12, 30] needs 180 bytes of codes", randn({5, 30}), randint(0, 256, {192, 1}, kUInt8), rand({6}),
          none, none, none, 12);
}
SF_OP_TEST(quantize_int8) {
  sample(randn({5, 64})).no_low_precision().no_golden();
  sample(randn({64, 5}).transpose(0, 1)).no_low_precision().no_golden();
  sample(zeros({3, 7}, kFloat64)).no_low_precision().no_golden();
  sample(randn({0, 4})).no_low_precision().no_golden();
  rejects("not finite", full({2, 32}, INFINITY));
  rejects("needs input [..., K], got a scalar", randn({}));
}
SF_OP_TEST(dequantize_int8) {
  sample(randint(-127, 128, {6, 48}, kInt8), rand({6})).no_golden();
  sample(randint(-127, 128, {6, 33}, kInt8), rand({}), kBFloat16, 1.0).no_golden();
  rejects("input must be int8", randn({6, 4}), rand({6}));
  rejects("scale must have one element, or shape [6] for each row, got [5]", randint(0, 9, {6, 4}, kInt8), rand({5}));
}
SF_OP_TEST(linear_int8) {
  auto codes = [&](int64_t n, int64_t k) { return randint(-127, 128, {n, k}, kInt8); };
  sample(randn({3, 5, 32}), codes(12, 32), rand({12}), randn({12})).no_golden().no_grad();
  sample(randn({40, 300}), codes(33, 300), rand({33}), none).no_golden().no_grad();
  sample(randn({2, 7}), codes(5, 7), rand({}), none, 1.0).no_golden().no_grad();
  // steps of the quantised input
  sample(randn({20, 32}), codes(48, 32), rand({48}), randn({48}), kInt8Unit, true)
      .no_golden()
      .no_grad()
      .no_low_precision();
  rejects("needs input [..., K] and weight [N, K]", randn({5, 21}), codes(7, 20), rand({7}));
  rejects("not finite", full({2, 20}, INFINITY), codes(7, 20), rand({7}), none, kInt8Unit, true);
}

namespace {

// f() by each provider of a table on the CPU.
template <class Args, class F> void with_each_provider(const KernelTable<Args>& table, const F& f) {
  for (int i = 0; i < table.count(Device::CPU); ++i) {
    const std::string label = provider_label(table.entry(Device::CPU, i));
    SCOPED_TRACE(label);
    pin_provider("*", label);
    f();
    unpin_providers();
  }
}

// Sums of whole numbers, scaled once: what plain C++ computes, to the bit, on every instruction set; of few rows and of
// many, of 128 below zero too, which other programs' files may have.
TEST(LinearInt8, SumsAreExact) {
  manual_seed(3);
  const int64_t columns = 37, depth = 700;
  const Tensor bias = randn({columns}), most = rand({columns});
  const Tensor q = randint(-128, 128, {columns, depth}, {}, kInt8);
  for (int64_t rows : {1, 9, 16, 50, 70}) {
    const Tensor x = randn({rows, depth}) * 3.0;
    auto [a, a_most] = quantize_int8(x);
    const auto *qp = q.data<int8_t>(), *ap = a.data<int8_t>();
    const auto *ms = most.data<float>(), *as = a_most.data<float>(), *b = bias.data<float>();
    with_each_provider(int8_linear, [&] {
      const Tensor y = linear_int8(x, q, most, bias, kInt8Unit, true);
      for (int64_t i = 0; i < rows; ++i)
        for (int64_t n = 0; n < columns; ++n) {
          int32_t sum = 0;
          for (int64_t k = 0; k < depth; ++k) sum += int32_t(ap[i * depth + k]) * qp[n * depth + k];
          volatile float scaled = float(sum) * (as[i] * float(kInt8Unit));  // no multiply-add in one
          scaled = scaled * (ms[n] * float(kInt8Unit));
          const float want = scaled + b[n];
          EXPECT_EQ(y.data<float>()[i * columns + n], want) << i << ' ' << n;
        }
    });
  }
}

TEST(QuantizeInt8, has_the_same_codes_on_every_instruction_set) {
  manual_seed(4);
  for (const Shape& shape : {Shape{5, 77}, Shape{3, 4096}, Shape{1, 40000}})
    for (DType t : {kFloat32, kBFloat16, kFloat16}) {
      const Tensor x = (randn(shape) * 2.0).to(t);
      with_each_provider(int8_quantize, [&] {
        auto [codes, most] = quantize_int8(x);
        const int64_t n = shape[1];
        const Tensor wide = x.to(kFloat32);
        for (int64_t r = 0; r < shape[0]; ++r) {
          float largest = 0;
          for (int64_t i = 0; i < n; ++i) largest = std::max(largest, std::fabs(wide.data<float>()[r * n + i]));
          EXPECT_EQ(most.data<float>()[r], largest);
          int64_t wrong = 0;
          for (int64_t i = 0; i < n; ++i) {
            volatile float scaled = wide.data<float>()[r * n + i] * (127.f / largest);
            wrong += codes.data<int8_t>()[r * n + i] != int8_t(std::nearbyint(scaled));
          }
          EXPECT_EQ(wrong, 0) << str(shape) << ' ' << t;
        }
      });
    }
}

}  // namespace

}  // namespace sf::test
