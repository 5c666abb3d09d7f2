#include "scaffolding/nn/quantize.h"

#include <gtest/gtest.h>

#include "scaffolding/autograd/tape.h"
#include "scaffolding/io/test_folder.h"
#include "scaffolding/nn/quantized.h"
#include "scaffolding/nn/quantized_gguf.h"
#include "scaffolding/nn/state_dict.h"
#include "scaffolding/ops/ops.h"
#include "scaffolding/ops/quantize/gguf.h"

namespace sf::nn {
namespace {

struct Small : Module {
  Linear fc{256, 32}, narrow{48, 16}, odd{20, 16}, time_embedding{64, 64};
  Conv2d conv{32, 16, 3, {.padding = 1}};
  Embedding table{10, 64};
  SF_MODULE(Small, fc, narrow, odd, time_embedding, conv, table)
};

double difference(const Tensor& a, const Tensor& b) { return to_dtype(amax(abs(a - b)), kFloat64).to_vector()[0]; }

TEST(Quantize, LayersStandInTheirPlaces) {
  Small m;
  const Tensor x = randn({3, 256}), image = randn({1, 32, 5, 5});
  const Tensor weight = m.fc.weight.clone(), kernel = m.conv.weight.clone();
  const auto done = quantize_(m, "q4_K", {.rules = {{"time*", ""}, {"*tab*", "q8_0"}}});
  ASSERT_EQ(done.size(), 3u);  // odd's rows of 20 fit no blocks; those of 48 fit none of 32 either
  EXPECT_EQ(done[0].format, "Q4_K");
  EXPECT_EQ(m.fc.weight.numel(), 0);
  const Tensor blocks = quantize_gguf(weight, "Q4_K");
  EXPECT_LT(difference(m.fc(x), linear(x, dequantize_gguf(blocks, "Q4_K", {32, 256}), m.fc.bias)), 1e-4);
  const Tensor dense = dequantize_gguf(quantize_gguf(kernel.view({1, 4608}), "Q4_K"), "Q4_K", {16, 32, 3, 3});
  EXPECT_LT(difference(m.conv(image), m.conv.convolve(image, dense, m.conv.bias)), 1e-4);
  const Tensor rows = m.table(to_dtype(arange(0, 10, 1), kInt64));
  EXPECT_EQ(rows.shape(), Shape({10, 64}));
  bool found = false;
  for (auto& [name, t] : state_dict(m))
    if (name == "fc.weight") found = t.dtype() == kUInt8 && t.shape() == Shape({32, 144});
  EXPECT_TRUE(found);
  to(m, {.dtype = kBFloat16});
  EXPECT_EQ(m.fc(to_dtype(x, kBFloat16)).dtype(), kBFloat16);
  EXPECT_EQ(m.table(to_dtype(arange(0, 10, 1), kInt64)).dtype(), kBFloat16);
  SF_EXPECT_ERROR(ValueError, "has no layer to replace", quantize_(m, "q4_K", {.rules = {{"*", ""}}}));
}

TEST(Quantize, OlderFormatsWorkInCpp) {
  for (const char* format : {"nf4", "fp4", "int8", "float8_e4m3fn", "float8_e5m2"}) {
    Small m;
    const Tensor x = randn({3, 256}), want = m.fc(x);
    const auto done = quantize_(m, format, {.rules = {{"*", ""}, {"fc", format}}});
    ASSERT_EQ(done.size(), 1u);
    EXPECT_LT(done[0].bytes, 256 * 32 * 2);
    const double error = difference(m.fc(x), want);
    EXPECT_TRUE(error > 0 && error < 0.5) << format << ' ' << error;
    const Module& there = *m.fc.present();
    EXPECT_EQ(format_of(there), format);
    EXPECT_LT(difference(m.fc(x), linear(x, dense_weight_of(there), m.fc.bias)), 1e-4) << format;
    const Tensor more = randn({3, 32});
    EXPECT_LT(difference(dynamic_cast<const StoredLinear&>(there).forward_plus(x, more), m.fc(x) + more), 1e-5)
        << format;
  }
  Small m;
  SF_EXPECT_ERROR(ValueError, "format must be one of nf4, fp4, int8", quantize_(m, "nf5"));
}

// More columns than are decoded at a time, few rows and many: each finds its part of the residual.
TEST(Quantize, WideLayersAddAResidual) {
  autograd::NoGrad off;
  for (const char* format : {"nf4", "fp4", "int8", "float8_e4m3fn", "float8_e5m2", "q8_0", "q4_K"}) {
    Sequential m{Linear(2048, 600)};
    quantize_(m, format, {.rules = {}});
    const auto& there = dynamic_cast<const StoredLinear&>(*m[0].present());
    for (int64_t rows : {3, 40}) {
      const Tensor x = randn({rows, 2048}), more = randn({rows, 600}) * 10;
      EXPECT_LT(difference(there.forward_plus(x, more), m(x) + more), 1e-4) << format << ' ' << rows;
    }
  }
}

// Strips of a few output channels give what the whole kernel gives.
TEST(Quantize, LargeConvolutionsAreDecodedInStrips) {
  Conv2d conv(512, 544, 3, {.padding = 1});
  const Conv2dGGUF blocks(conv, "Q8_0", conv.weight);
  autograd::NoGrad off;
  for (const Shape& size : {Shape{2, 512, 6, 5}, Shape{512, 4, 4}}) {
    const Tensor x = randn(size), got = blocks(x), want = conv.convolve(x, blocks.dense_weight(kFloat32), conv.bias);
    EXPECT_EQ(got.shape(), want.shape());
    EXPECT_LT(difference(got, want), 1e-4);
  }
}

TEST(Quantize, BlocksOfAnotherSizeAreNotTaken) {
  Small m;
  EXPECT_EQ(put_gguf(m.fc, "Q8_0", zeros({100}, kUInt8), kFloat32), nullptr);
  EXPECT_EQ(put_gguf(m.odd, "Q8_0", zeros({16 * 34}, kUInt8), kFloat32), nullptr);
  EXPECT_EQ(put_gguf(m, "Q8_0", zeros({16 * 34}, kUInt8), kFloat32), nullptr);
  EXPECT_NE(put_gguf(m.fc, "Q8_0", zeros({32, 272}, kUInt8).view({32 * 272}), kFloat32), nullptr);
  EXPECT_EQ(put_gguf(m.fc, "Q8_0", zeros({32 * 272}, kUInt8), kFloat32), nullptr);  // something stands there
  EXPECT_EQ(difference(m.fc(ones({1, 256})), m.fc.bias), 0);
}

}  // namespace
}  // namespace sf::nn
