// Products with decoded weights on tiles, and of few rows, against float64 of the numbers that are multiplied.
#include "scaffolding/core/parallel.h"
#include "scaffolding/ops/matmul/test_tiles.h"
#include "scaffolding/ops/quantize/coded_kernel.h"
#include "scaffolding/ops/quantize/gguf.h"
#include "scaffolding/ops/quantize/gguf_kernel.h"
#include "scaffolding/ops/quantize/nf4.h"

namespace sf::test {
namespace {

struct Sizes {
  int64_t m, n, k;
};
constexpr Sizes kSizes[] = {{17, 40, 64}, {33, 130, 256}, {70, 48, 1056}, {40, 900, 800}};

// What a kernel multiplies: the weight in the dtype of the activations. Two roundings are let pass: that of the weight,
// which not every kernel makes, and that of the result.
void expect_right(const Tensor& got, const Tensor& a, const Tensor& weight, const Tensor& bias,
                  const Tensor& residual) {
  const Tensor wide = a.to(kFloat64), turned = weight.to(kFloat64).t();
  const Tensor want = relu(matmul(wide, turned) + bias.to(kFloat64) + residual.to(kFloat64));
  const Tensor most = matmul(abs(wide), abs(turned)) + abs(bias.to(kFloat64)) + abs(residual.to(kFloat64));
  const double last = a.dtype() == kBFloat16 ? 0x1p-8 : a.dtype() == kFloat16 ? 0x1p-10 : 0x1p-20;
  EXPECT_LE(amax(abs(got.to(kFloat64) - want) / (most * last)).item(), 1) << a.size(0) << ", " << a.size(1);
}

class DecodedProduct : public testing::Test {
  autograd::NoGrad off_;

 protected:
  void SetUp() override { manual_seed(3); }
};

TEST_F(DecodedProduct, of_codes_and_blocks_in_both_dtypes) {
  for (DType t : {kFloat32, kBFloat16})
    for (auto [m, n, k] : kSizes) {
      const Tensor a = randn({m, k}).to(t), bias = randn({n}), residual = randn({m, n}).to(t), w = randn({n, k});
      Tensor c = full({m, n}, NAN, t);
      auto [codes, absmax] = quantize_nf4(w);
      call(tile_kernel(coded_product), CodedProduct{.a = a,
                                                    .bias = bias,
                                                    .c = c,
                                                    .residual = residual,
                                                    .codes = codes,
                                                    .scales = absmax,
                                                    .format = CodedFormat::Nf4,
                                                    .act = Activation::Relu});
      expect_right(c, a, dequantize_nf4(codes, absmax, {n, k}, t), bias, residual);
      const char* name = k % 256 == 0 ? "Q4_K" : "Q8_0";
      const Tensor blocks = quantize_gguf(w, name);
      c.fill_(NAN);
      call(tile_kernel(gguf_product), GgufProduct{.a = a,
                                                  .blocks = blocks,
                                                  .bias = bias,
                                                  .residual = residual,
                                                  .c = c,
                                                  .format = k % 256 == 0 ? GgufBlocks::Q4_K : GgufBlocks::Q8_0,
                                                  .act = Activation::Relu});
      expect_right(c, a, dequantize_gguf(blocks, name, {n, k}, t), bias, residual);
    }
}

// What does not split into parts is multiplied as it is.
TEST_F(DecodedProduct, of_float32_falls_back_where_parts_would_leave_a_rest) {
  const Tensor a = randn({20, 256}), bias = zeros({256}), c = full({20, 256}, NAN);
  a.slice(0, 3, 4).slice(1, 7, 8).fill_(1e-40);
  auto [codes, absmax] = quantize_nf4(randn({256, 256}));
  CodedProduct p{.a = a, .bias = bias, .c = c, .codes = codes, .scales = absmax, .format = CodedFormat::Nf4};
  call(tile_kernel(coded_product), p);
  const Tensor want = full({20, 256}, NAN);
  p.c = want;
  call(plain_kernel(coded_product), p);
  if (falls_back_to_the_same_bits()) EXPECT_TRUE(same_bits(c, want));
  else EXPECT_LE(amax(abs(c - want)).item(), 1e-3);
}

TEST_F(DecodedProduct, of_few_rows_in_every_format_on_any_threads) {
  const int threads = num_threads();
  for (auto& f : gguf_formats())
    for (int64_t k : {int64_t(f.block), int64_t(5 * f.block), int64_t(1024)})
      for (int64_t m : {1, 2, 3, 4, 8, 9}) {
        if (!f.blocks) continue;
        SCOPED_TRACE(f.name);
        const DType t = m == 2 ? kBFloat16 : m == 3 ? kFloat16 : kFloat32;
        const std::string name(f.name);
        const Tensor a = randn({m, k}).to(t), bias = randn({301}).to(t), residual = randn({m, 301}).to(t);
        const Tensor blocks = quantize_gguf(randn({301, k}) + 0.5, name);
        const Tensor y = linear_gguf(a, blocks, bias, name, "relu", residual);
        expect_right(y, a, dequantize_gguf(blocks, name, {301, k}), bias, residual);
        set_num_threads(1);
        EXPECT_TRUE(same_bits(y, linear_gguf(a, blocks, bias, name, "relu", residual)));
        set_num_threads(threads);
      }
}

TEST_F(DecodedProduct, of_few_rows_keep_infinities) {
  for (const char* name : {"Q4_0", "Q5_1", "Q4_K", "Q6_K"}) {
    const Tensor a = randn({2, 255}), infinite = full({2, 1}, std::numeric_limits<double>::infinity());
    const Tensor blocks = quantize_gguf(rand({5, 256}) + 1, name);  // all positive
    const Tensor y = linear_gguf(cat({a, infinite}, 1), blocks, {}, name);
    EXPECT_EQ(amin(y).item(), std::numeric_limits<double>::infinity()) << name;
  }
}

TEST_F(DecodedProduct, of_few_rows_and_nibbles_whose_blocks_begin_with_rows_or_do_not) {
  for (auto [k, block] : {std::pair<int64_t, int64_t>{352, 32}, {192, 64}, {640, 128}, {4096, 4096}, {77, 64}})
    for (int64_t m : {1, 2, 5, 9}) {
      const Tensor a = randn({m, k}), none = zeros({9});
      auto [codes, most] = quantize_nf4(randn({9, k}), block);
      const Tensor small = randint(0, 256, {most.numel()}).to(kUInt8), offset = rand({});
      const Tensor nested = rand({(most.numel() + 255) / 256});
      expect_right(relu(linear_nf4(a, codes, most, {}, {}, {}, 9, block)), a,
                   dequantize_nf4(codes, most, {9, k}, {}, block), none, none);
      expect_right(relu(linear_nf4(a, codes, small, nested, offset, {}, 9, block)), a,
                   dequantize_nf4(codes, small, {9, k}, {}, block, nested, offset), none, none);
    }
}

}  // namespace
}  // namespace sf::test
