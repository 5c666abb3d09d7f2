// Weights in few bits on a CUDA device (or the emulator): numbers to the CPU's bits, products of every format by each
// way they are made, and the layers.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "scaffolding/autograd/mode.h"
#include "scaffolding/backend/accelerator.h"
#include "scaffolding/backend/backend.h"
#include "scaffolding/nn/quantized.h"
#include "scaffolding/nn/quantized_conv.h"
#include "scaffolding/nn/quantized_gguf.h"
#include "scaffolding/nn/quantized_rows.h"
#include "scaffolding/ops/ops.h"
#include "scaffolding/ops/quantize/block_codes.h"
#include "scaffolding/ops/quantize/coded_kernel.h"
#include "scaffolding/ops/quantize/fp4.h"
#include "scaffolding/ops/quantize/gguf_kernel.h"
#include "scaffolding/ops/quantize/int8_rows.h"

namespace sf::nn {
namespace {

class CudaQuantized : public testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    if (!backend_available(Device::CUDA, &why)) GTEST_SKIP() << "unproven here: " << why;
    manual_seed(3);
  }
  static double distance(const Tensor& got, const Tensor& want) {
    const auto a = got.cpu().to_vector(), b = want.cpu().to_vector();
    EXPECT_EQ(a.size(), b.size());
    double err = 0, scale = 1e-30;
    for (size_t i = 0; i < a.size(); ++i) err += (a[i] - b[i]) * (a[i] - b[i]), scale += b[i] * b[i];
    return std::sqrt(err / scale);
  }
  static double allowed(DType t) { return t == kFloat32 ? 2e-6 : t == kFloat16 ? 2e-3 : 1.2e-2; }
  // Bytes that differ, but for numbers that are NaN on both sides.
  static int64_t different(const Tensor& got, const Tensor& want) {
    const Tensor a = got.cpu(), b = want.cpu();
    const auto x = a.to_vector(), y = b.to_vector();
    const auto *p = static_cast<const char*>(a.data_ptr()), *q = static_cast<const char*>(b.data_ptr());
    const size_t each = size_of(a.dtype());
    int64_t wrong = 0;
    for (size_t i = 0; i < x.size(); ++i)
      wrong += !(std::isnan(x[i]) && std::isnan(y[i])) && std::memcmp(p + i * each, q + i * each, each) != 0;
    return wrong;
  }
  // The same values one byte past where an allocation begins.
  static Tensor moved(const Tensor& x) {
    const Tensor flat = x.reshape({x.numel()});
    return cat({zeros({1}, x.dtype()), flat}, 0).cuda().narrow(0, 1, x.numel()).view(x.shape());
  }
};

TEST_F(CudaQuantized, any_bytes_are_the_cpus_numbers) {
  for (auto& f : gguf_formats()) {
    if (!f.blocks) continue;
    const int64_t n = 256 * 37;  // several warps, and a rest
    const Tensor bytes = randint(0, 256, {n / f.block * f.bytes}, {}, kUInt8);
    for (DType t : {kFloat32, kBFloat16, kFloat16})
      for (const Tensor& there : {bytes.cuda(), moved(bytes)})
        EXPECT_EQ(different(dequantize_gguf(there, std::string(f.name), {n}, t),
                            dequantize_gguf(bytes, std::string(f.name), {n}, t)),
                  0)
            << f.name << ' ' << name(t);
  }
}

// Products with few rows, with more, and by the strip, against float64.
TEST_F(CudaQuantized, products_are_those_of_the_numbers) {
  const int64_t n = 19, k = 1280;
  auto check = [&](const std::string& what, DType t, const Tensor& dense, auto product) {
    for (int64_t m : {1, 2, 3, 13, 40}) {
      const Tensor x = to_dtype(randn({m, k}), t), bias = to_dtype(randn({n}), t),
                   residual = to_dtype(randn({m, n}), t);
      const Tensor plain = linear(to_dtype(x, kFloat64), to_dtype(dense, kFloat64), to_dtype(bias, kFloat64));
      EXPECT_LE(distance(product(x.cuda(), bias.cuda(), ProductEnd{}), plain), allowed(t)) << what << ' ' << m;
      EXPECT_LE(distance(product(x.cuda(), bias.cuda(), ProductEnd{residual.cuda(), "silu"}),
                         silu(plain + to_dtype(residual, kFloat64))),
                2 * allowed(t))
          << what << ' ' << m;
    }
  };
  for (DType t : {kFloat32, kBFloat16, kFloat16}) {
    for (auto& f : gguf_formats()) {
      if (!f.blocks) continue;
      const std::string format(f.name);
      const Tensor w = quantize_gguf(randn({n, k}), format), there = w.cuda();
      check(format, t, dequantize_gguf(w, format, {n, k}), [&](const Tensor& x, const Tensor& b, const ProductEnd& e) {
        return linear_gguf(x, there, b, format, e.activation, e.residual);
      });
    }
    for (bool fp4 : {false, true}) {
      auto [codes, most] = fp4 ? quantize_fp4(randn({n, k})) : quantize_nf4(randn({n, k}));
      const BlockFormat format = fp4 ? BlockFormat::Fp4 : BlockFormat::Nf4;
      const BlockCodes w{codes, most, {}, {}, format}, there{codes.cuda(), most.cuda(), {}, {}, format};
      check("nibbles", t, dequantize_blocks("test", w, {n, k}, kFloat32),
            [&](const Tensor& x, const Tensor& b, const ProductEnd& e) {
              return linear_of_blocks("test", x, there, b, n, e);
            });
    }
    auto [codes, most] = quantize_int8(randn({n, k}));
    const Tensor c = codes.cuda(), s = most.cuda();
    check("int8", t, dequantize_int8(codes, most), [&](const Tensor& x, const Tensor& b, const ProductEnd& e) {
      return linear_int8_with(x, c, s, b, kInt8Unit, false, e);
    });
    for (DType weight : {kFloat8E4M3, kFloat8E5M2})
      for (bool per_row : {false, true}) {
        auto [q, scale] = quantize_fp8(randn({n, k}), weight, per_row);
        const Tensor there = q.cuda(), scale_there = scale.cuda();
        check("float8", t, dequantize_fp8(q, scale), [&](const Tensor& x, const Tensor& b, const ProductEnd& e) {
          return linear_fp8_with(x, there, scale_there, b, false, e);
        });
      }
  }
}

TEST_F(CudaQuantized, weights_may_lie_anywhere_and_are_read_as_they_lie) {
  const int64_t n = 9, k = 544;
  const Tensor w = quantize_gguf(randn({n, k}), "Q5_0"), there = moved(w);
  const Tensor wide = randn({20, k + 3}).cuda();
  for (int64_t m : {3, 20}) {
    const Tensor x = wide.narrow(0, 0, m).narrow(1, 3, k);
    EXPECT_LE(distance(linear_gguf(x, there, {}, "Q5_0"),
                       linear(to_dtype(x.cpu(), kFloat64), dequantize_gguf(w, "Q5_0", {n, k}, kFloat64))),
              2e-6);
  }
  EXPECT_GT(gguf_product.count(DeviceType::CUDA), 0);
  EXPECT_GT(coded_product.count(DeviceType::CUDA), 0);
}

// A weight of 68 MB in float32 goes through strips of 32: the device holds no more of it at once.
TEST_F(CudaQuantized, a_wide_weight_is_never_whole) {
  const int64_t n = 260, k = 65536, m = 17;
  const Tensor w = tile(quantize_gguf(randn({n, 256}), "Q4_K"), {1, k / 256}), there = w.cuda(),
               x = randn({m, k}).cuda();
  Accelerator& gpu = accelerator(Device("cuda"));
  gpu.reset_peak(0);
  const int64_t before = int64_t(gpu.memory(0).allocated);
  const Tensor y = linear_gguf(x, there, {}, "Q4_K");
  EXPECT_LE(int64_t(gpu.memory(0).max_allocated) - before, (64 << 20) + (1 << 20));
  EXPECT_LE(distance(y, linear_gguf(x.cpu(), w, {}, "Q4_K")), 4e-6);
}

TEST_F(CudaQuantized, int8_activations_have_the_cpus_bits) {
  // k and n that cuBLASLt takes, and that it does not
  for (auto [m, n, k] : {std::array<int64_t, 3>{9, 36, 704}, {5, 7, 33}, {1, 4, 16}})
    for (DType t : {kFloat32, kBFloat16, kFloat16}) {
      const Tensor x = to_dtype(randn({m, k}) * 3.0, t), bias = randn({n});
      auto [codes, most] = quantize_int8(randn({n, k}));
      auto [here, here_most] = quantize_int8(x);
      auto [there, there_most] = quantize_int8(x.cuda());
      EXPECT_EQ(different(there, here), 0) << name(t) << ' ' << k;
      EXPECT_EQ(different(there_most, here_most), 0);
      EXPECT_EQ(different(linear_int8(x.cuda(), codes.cuda(), most.cuda(), bias.cuda(), kInt8Unit, true),
                          linear_int8(x, codes, most, bias, kInt8Unit, true)),
                0)
          << name(t) << ' ' << k;
    }
  const Tensor odd = tensor({1, 2, INFINITY, 4}, kFloat32).view({1, 4}).cuda();
  const Tensor w = ones({4, 4}, kInt8).cuda(), scale = ones({4}).cuda();
  for (double x : linear_int8(odd, w, scale, {}, 1.0, true).cpu().to_vector()) EXPECT_TRUE(std::isnan(x));
}

TEST_F(CudaQuantized, int8_convolutions_have_the_cpus_bits) {
  struct Case {
    Shape x, w;  // w: [O, C, KH, KW]
    int64_t stride, padding, dilation;
  };
  for (const Case& c : {Case{{2, 32, 11, 9}, {12, 32, 3, 3}, 1, 1, 1}, Case{{1, 16, 8, 8}, {8, 16, 1, 1}, 1, 0, 1},
                        Case{{2, 12, 13, 10}, {5, 12, 3, 2}, 2, 1, 2}, Case{{1, 3, 9, 9}, {4, 3, 3, 3}, 2, 1, 1}})
    for (DType t : {kFloat32, kBFloat16, kFloat16}) {
      const Tensor x = to_dtype(randn(c.x) * 2.0, t), bias = randn({c.w[0]});
      auto [w, most] = quantize_conv_int8(randn(c.w));
      const Tensor want = conv2d_int8(x, w, most, bias, {c.stride}, {c.padding}, {c.dilation});
      const Tensor got =
          conv2d_int8(x.cuda(), w.cuda(), most.cuda(), bias.cuda(), {c.stride}, {c.padding}, {c.dilation});
      EXPECT_EQ(different(contiguous(got.cpu()), contiguous(want)), 0) << str(c.x) << ' ' << name(t);
    }
}

TEST_F(CudaQuantized, layers_go_there_and_give_gradients) {
  auto check = [](auto& layer, const Tensor& input, double most = 2e-6) {
    auto run = [&](const Tensor& x) {
      const Tensor leaf = x.detach().clone().requires_grad_();
      const Tensor y = layer.forward(leaf);
      y.backward(ones(y.shape(), y.dtype(), y.device()));
      return std::pair{y.detach(), leaf.grad()};
    };
    const auto [y, dx] = run(input);
    to(layer, {.device = Device("cuda")});
    const auto [y_there, dx_there] = run(input.cuda());
    EXPECT_TRUE(y_there.device().is_cuda());
    EXPECT_LE(distance(y_there, y), most) << layer.type();
    EXPECT_LE(distance(dx_there, dx), most) << layer.type();
    autograd::NoGrad off;
    EXPECT_LE(distance(layer.forward(input.cuda()), y), most) << layer.type();
  };
  const Tensor x = randn({5, 256});
  LinearGGUF gguf(256, 24, true, "Q3_K", {}, randn({24, 256}));
  check(gguf, x);
  LinearFP4 fp4(256, 24, true, true, {}, randn({24, 256}));
  check(fp4, x);
  LinearNF4 nf4(256, 24, true, true, {}, randn({24, 256}));
  check(nf4, x);
  LinearInt8 rows(256, 24, true, false, kInt8Unit, {}, randn({24, 256}));
  check(rows, x);
  LinearInt8 dynamic(256, 24, true, true, kInt8Unit, {}, randn({24, 256}));
  check(dynamic, x);
  auto like = [] { return Conv2d(32, 8, {3, 3}, ConvOptions{}); };
  const Tensor kernel = randn({8, 32, 3, 3}), image = randn({2, 32, 9, 7});
  Conv2dGGUF conv(like(), "Q5_1", kernel);
  check(conv, image, 1e-3);  // cuDNN rounds to TF32
  Conv2dInt8 conv_int8(like(), true, kernel);
  check(conv_int8, image, 1e-3);  // its gradient
  EmbeddingGGUF words(19, 64, "Q4_0", {}, randn({19, 64}));
  const Tensor ids = randint(0, 19, {3, 4}, {}, kInt64), want = words.forward(ids);
  to(words, {.device = Device("cuda")});
  EXPECT_EQ(different(words.forward(ids.cuda()), want), 0);
}

}  // namespace
}  // namespace sf::nn
