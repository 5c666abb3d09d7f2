// layer_norm and GEGLU that write float8, against the op and quantize_fp8 one after the other, and a product of their
// results beside a residual, where cuBLASLt refuses that too.
#include "scaffolding/ops/quantize/fp8_producers.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "scaffolding/autograd/mode.h"
#include "scaffolding/backend/backend.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/fused/glu/glu.h"
#include "scaffolding/ops/layer_norm/layer_norm.h"
#include "scaffolding/ops/matmul/matmul.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/quantize/fp8.h"
#include "scaffolding/ops/quantize/kernel.h"
#include "scaffolding/ops/random/random.h"
#include "scaffolding/ops/reduce/reduce.h"

namespace sf {
namespace {

class CudaFloat8Producers : public testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    if (!backend_available(Device::CUDA, &why)) GTEST_SKIP() << "unproven here: " << why;
    manual_seed(1);
  }
  // Codes may differ by one step where a number lies between two of them, which the last bit of a sum decides.
  static void expect_same(const Float8Rows& got, const Tensor& exact, const char* what) {
    autograd::NoGrad off;
    auto [q, scale] = quantize_fp8(exact, kFloat8E4M3, true);
    ASSERT_EQ(got.q.shape(), q.shape()) << what;
    ASSERT_EQ(got.scale.numel(), scale.numel()) << what;
    Tensor s = got.scale.cpu();
    EXPECT_LT(amax(abs(s.reshape(scale.shape()) / scale - 1)).item(), 1e-2) << what;
    auto a = to_dtype(got.q.cpu(), kFloat32).to_vector(), b = to_dtype(q, kFloat32).to_vector();
    size_t different = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      different += a[i] != b[i];
      ASSERT_LE(std::abs(a[i] - b[i]), 0.126 * std::abs(b[i]) + 0.002) << what << " at " << i;
    }
    EXPECT_LE(different, a.size() / 25 + 2) << what;
  }
};

TEST_F(CudaFloat8Producers, layer_norm_and_quantize_in_one) {
  for (DType t : {kFloat32, kBFloat16, kFloat16})
    for (const Shape& size : {Shape{3, 5, 320}, {7, 33}, {2, 1280}, {1, 8}, {9, 1}})
      for (bool affine : {false, true}) {
        Tensor x = (randn(size) * 3 + 1).to(t), w = affine ? randn({size.back()}) : Tensor(),
               b = affine ? randn({size.back()}).to(t) : Tensor();
        Float8Rows got = layer_norm_fp8(x.cuda(), w ? w.cuda() : w, b ? b.cuda() : b, 1e-5);
        expect_same(got, layer_norm(x, {size.back()}, w, b, 1e-5), "layer_norm_fp8");
      }
}

TEST_F(CudaFloat8Producers, geglu_and_quantize_in_one) {
  for (DType t : {kFloat32, kBFloat16, kFloat16})
    for (const Shape& size : {Shape{3, 5, 320}, {7, 34}, {2, 20480}, {1, 2}}) {
      Tensor x = (randn(size) * 2).to(t);
      expect_same(geglu_fp8(x.cuda()), geglu(x), "geglu_fp8");
    }
}

TEST_F(CudaFloat8Producers, rows_of_zeros_have_a_scale_of_one) {
  Float8Rows got = geglu_fp8(zeros({2, 64}).cuda());
  EXPECT_EQ(got.scale.cpu().to_vector(), (std::vector<double>{1, 1}));
  EXPECT_EQ(amax(abs(to_dtype(got.q.cpu(), kFloat32))).item(), 0);
}

TEST_F(CudaFloat8Producers, a_product_adds_bias_and_residual) {
  Tensor x = randn({2, 12, 64}), residual = randn({2, 12, 48}).to(kBFloat16), bias = randn({48}).to(kBFloat16);
  auto [w, scale] = quantize_fp8(randn({48, 64}), kFloat8E4M3, true);
  auto [q, rows] = quantize_fp8(x, kFloat8E4M3, true);
  Float8Rows here{q, rows.reshape({24, 1})}, there{q.cuda(), rows.reshape({24, 1}).cuda()};
  Tensor want = linear_of_fp8(here, w, scale, bias.to(kFloat32), {}, kFloat32) + residual.to(kFloat32);
  Tensor got = linear_of_fp8(there, w.cuda(), scale.cuda(), bias.cuda(), residual.cuda(), kBFloat16);
  EXPECT_EQ(got.dtype(), kBFloat16);
  EXPECT_LT((amax(abs(got.cpu().to(kFloat32) - want)) / amax(abs(want))).item(), 5e-3);
  EXPECT_THROW(linear_of_fp8(there, w.cuda(), scale.cuda(), bias.cuda(), residual.cuda().reshape({24, 48}), kBFloat16),
               Error);
}

void add_bias_and_residual(bool rows, const char* provider) {
  Tensor residual = randn({24, 48}).to(kFloat16), bias = randn({48}).to(kFloat16);
  auto [a, of_a] = quantize_fp8(randn({24, 64}), kFloat8E4M3, rows);
  auto [b, of_b] = quantize_fp8(randn({48, 64}), kFloat8E4M3, rows);
  Tensor want = matmul(a.to(kFloat32), b.to(kFloat32).t()) * of_a * of_b.t() + bias + residual;
  Tensor x = a.cuda(), w = b.cuda().t(), y = empty({24, 48}, kFloat16, Device("cuda")), added = residual.cuda(),
         shift = bias.cuda(), scale_x = of_a.cuda().reshape({-1}), scale_w = of_b.cuda().reshape({-1});
  ScaledProduct args{x, w, scale_x, scale_w, shift, y, added};
  auto kernel = scaled_product.find(Device("cuda"), args);
  EXPECT_STREQ(kernel.provider(), provider);
  kernel(args);
  EXPECT_LT((amax(abs(y.cpu().to(kFloat32) - want)) / amax(abs(want))).item(), 1e-3);
}

// cuBLASLt calls an epilogue invalid (1), or runs none (8). In processes that set this before they ask for a GPU.
TEST(CudaFloat8Refusals, bias_and_residual_are_added_all_the_same) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const char* path = getenv("SF_CUDA_LIBRARY");
  if (!path || !dlopen(path, RTLD_NOW | RTLD_GLOBAL) || !dlsym(RTLD_DEFAULT, "sf_cuda_emulator_queue"))
    GTEST_SKIP() << "needs the emulator";
  for (std::string gpu : {"sm_90", "sm_89"})
    for (std::string refused : {"0", "1", "8"})
      EXPECT_EXIT(
          {
            setenv("SF_CUDA_EMULATOR_GPU", gpu.c_str(), 1);
            setenv("SF_CUBLASLT_EMULATOR_REFUSES", refused.c_str(), 1);
            setenv("SF_CUDA_WGMMA", "off", 1);  // or cuBLASLt is not asked
            for (bool rows : {false, true})
              add_bias_and_residual(rows, refused == "1" || (rows && gpu == "sm_89") ? "passes" : "cublaslt");
            std::_Exit(HasFailure() ? 1 : 0);
          },
          testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace sf
