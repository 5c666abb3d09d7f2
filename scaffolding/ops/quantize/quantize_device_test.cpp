// What cuBLASLt does of linear layers beside plain products, on a GPU or in the emulator: float8 products, and both
// gradients of parameters in one call.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cmath>

#include "scaffolding/backend/backend.h"
#include "scaffolding/backend/precision.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/matmul/linear_gradient.h"
#include "scaffolding/ops/matmul/matmul.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/quantize/fp8.h"
#include "scaffolding/ops/quantize/kernel.h"
#include "scaffolding/ops/random/random.h"
#include "scaffolding/ops/reduce/reduce.h"
#include "scaffolding/ops/view/view.h"

namespace sf {
namespace {

class CudaLinear : public testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    if (!backend_available(Device::CUDA, &why)) GTEST_SKIP() << "unproven here: " << why;
    manual_seed(1);
    emulated_ = dlsym(RTLD_DEFAULT, "sf_cuda_emulator_queue") != nullptr;
  }
  bool emulated_ = false;
  static double distance(const Tensor& got, const Tensor& want) {
    auto a = got.cpu().to_vector(), b = want.cpu().to_vector();
    EXPECT_EQ(a.size(), b.size());
    double err = 0, scale = 1e-30;
    for (size_t i = 0; i < a.size(); ++i) err += (a[i] - b[i]) * (a[i] - b[i]), scale += b[i] * b[i];
    return std::sqrt(err / scale);
  }
};

TEST_F(CudaLinear, float8_products_are_multiplied_as_they_are) {
  // A GPU's tensor cores keep 13 bits of mantissa of a sum of 32 products; the emulator sums exactly.
  const double most32 = emulated_ ? 1e-6 : 0x1p-13;
  for (bool per_row : {false, true})
    for (DType weight_type : {kFloat8E4M3, kFloat8E5M2})
      for (DType out : {kBFloat16, kFloat16, kFloat32}) {
        auto [a, scale_a] = quantize_fp8(randn({24, 64}), kFloat8E4M3, per_row);
        auto [b, scale_b] = quantize_fp8(randn({48, 64}), weight_type, per_row);
        Tensor turned = per_row ? scale_b.t() : scale_b,
               bias = to_dtype(randn({48}), out == kFloat16 ? kFloat16 : kBFloat16);
        Tensor there_a = a.cuda(), there_b = b.cuda().t(), c = empty({24, 48}, out, Device("cuda")),
               flat = scale_a.reshape({scale_a.numel()}).cuda(), flat_b = turned.reshape({turned.numel()}).cuda();
        EXPECT_TRUE(scaled_product.find(Device("cuda"), {there_a, there_b, flat, flat_b, {}, c}))
            << "in float8, rows " << per_row << ", out " << name(out);
        Tensor want = scaled_mm(a, b.t(), scale_a, turned, bias, kFloat32);
        Tensor got = scaled_mm(there_a, there_b, scale_a.cuda(), turned.cuda(), bias.cuda(), out);
        EXPECT_EQ(got.dtype(), out);
        EXPECT_LE(distance(got, want), out == kFloat32   ? most32
                                       : out == kFloat16 ? 1e-3
                                                         : 4e-3)
            << "rows " << per_row << ", out " << name(out);
      }
}

TEST_F(CudaLinear, float8_products_that_a_gpu_does_not_have_are_bfloat16s) {
  Device cuda("cuda");
  Tensor one = ones({1}, kFloat32), there = one.cuda(), c = empty({24, 48}, kBFloat16, cuda);
  auto q = [&](const Shape& size, DType t) { return std::get<0>(quantize_fp8(randn(size), t)); };
  auto provider = [&](const Tensor& a, const Tensor& b, bool fast = false) {
    EXPECT_LE(
        distance(scaled_mm(a.cuda(), b.cuda(), there, there, {}, {}, fast), scaled_mm(a, b, one, one, {}, kFloat32)),
        4e-3);
    return std::string(scaled_product.find(cuda, {a.cuda(), b.cuda(), there, there, {}, c, {}, fast}).provider());
  };
  // both of the wide range; not dense along k; 40 is no multiple of 16
  EXPECT_EQ(provider(q({24, 64}, kFloat8E5M2), q({48, 64}, kFloat8E5M2).t()), "passes");
  EXPECT_EQ(provider(q({24, 64}, kFloat8E4M3), q({64, 48}, kFloat8E4M3)), "passes");
  EXPECT_EQ(provider(q({24, 40}, kFloat8E4M3), q({48, 40}, kFloat8E4M3).t()), "passes");
  EXPECT_EQ(provider(q({24, 64}, kFloat8E4M3), q({48, 64}, kFloat8E4M3).t()), "cublaslt");
  EXPECT_EQ(provider(q({24, 64}, kFloat8E4M3), q({48, 64}, kFloat8E4M3).t(), true),
            warpgroup_products() == WarpgroupProducts::On ? "wgmma" : "cublaslt");
}

TEST_F(CudaLinear, float8_sums_of_fewer_bits_are_for_calls_that_allow_them) {
  const int64_t k = 4096;
  const double most = double(k) / 32 * 0x1p-14;
  auto [a, scale_a] = quantize_fp8(randn({16, k}));
  auto [b, scale_b] = quantize_fp8(randn({32, k}));
  const Tensor want = scaled_mm(a, b.t(), scale_a, scale_b, {}, kFloat32), there_a = a.cuda(), there_b = b.cuda().t();
  for (DType out : {kBFloat16, kFloat16, kFloat32}) {
    auto off = [&](bool fast) {
      return distance(scaled_mm(there_a, there_b, scale_a.cuda(), scale_b.cuda(), {}, out, fast), want);
    };
    const double exact = off(false), fast = off(true);
    EXPECT_LE(exact, out == kBFloat16 ? 4e-3 : out == kFloat16 ? 1e-3 : emulated_ ? 1e-6 : 0x1p-12) << name(out);
    EXPECT_LE(fast, most) << name(out);
    // Tensor cores of other GPUs may keep more; Hopper's and the emulator's do not.
    if (emulated_ && out == kFloat16 && warpgroup_products() == WarpgroupProducts::Off) EXPECT_GT(fast, 4 * exact);
    if (out == kFloat32) EXPECT_EQ(fast, exact);
  }
  // Allowed by a layer whose input is quantised on the way, beside which it is little.
  const Tensor x = to_dtype(randn({16, k}), kBFloat16);
  const Tensor ideal = matmul(to_dtype(x, kFloat64), to_dtype(dequantize_fp8(b, scale_b), kFloat64).t());
  auto layer = [&](const Tensor& input, const Tensor& weight, const Tensor& scale) {
    return linear_fp8(input, weight, scale, {}, true);
  };
  const double exact = distance(layer(x, b, scale_b), ideal),
               fast = distance(layer(x.cuda(), b.cuda(), scale_b.cuda()), ideal);
  EXPECT_LE(fast, 1.02 * exact);
}

TEST_F(CudaLinear, gradients_of_weight_and_bias_come_from_one_call) {
  for (DType t : {kFloat32, kBFloat16, kFloat16})
    for (auto [m, k, n] : {std::array<int64_t, 3>{33, 20, 7}, {1, 5, 3}, {64, 32, 16}, {5, 1, 1}}) {
      Tensor x = to_dtype(randn({m, k}), t), w = to_dtype(randn({n, k}), t), b = to_dtype(randn({n}), t),
             dy = to_dtype(randn({m, n}), t);
      Tensor there_x = x.cuda(), there_w = w.cuda().requires_grad_(), there_b = b.cuda().requires_grad_(),
             there_dy = dy.cuda();
      Tensor dw = empty({1, n, k}, t, Device("cuda")), db = empty({n}, t, Device("cuda"));
      // A GPU's cuBLASLt may have nothing for single rows and columns: there are two passes then.
      if (emulated_ || (m > 1 && n > 1)) {
        EXPECT_TRUE(linear_gradient.find(Device("cuda"), {there_dy.unsqueeze(0), there_x.unsqueeze(0), dw, db}))
            << name(t) << " " << m << " " << k << " " << n;
      }
      linear(there_x, there_w, there_b).backward(there_dy);
      Tensor wide = to_dtype(dy, kFloat64);
      double most = t == kFloat32 ? 1e-6 : t == kFloat16 ? 1e-3 : 4e-3;
      EXPECT_LE(distance(there_w.grad(), matmul(wide.t(), to_dtype(x, kFloat64))), most)
          << name(t) << " " << m << " " << k << " " << n;
      // numbers of either sign: their sum may be far smaller than they are
      Tensor away = abs(to_dtype(there_b.grad().cpu(), kFloat64) - sum(wide, Shape{0}));
      EXPECT_LE(amax(away).item(), most * amax(sum(abs(wide), Shape{0})).item())
          << name(t) << " " << m << " " << k << " " << n;
    }
}

}  // namespace
}  // namespace sf
