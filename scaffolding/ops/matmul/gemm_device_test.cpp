// Products on a CUDA device (or the emulator): every layout, epilogue and dtype of Gemm, by each provider,
// against the CPU.
#include <gtest/gtest.h>

#include <cmath>

#include "scaffolding/backend/backend.h"
#include "scaffolding/backend/precision.h"
#include "scaffolding/core/provider.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/matmul/matmul.h"
#include "scaffolding/ops/random/random.h"
#include "scaffolding/ops/view/view.h"

namespace sf {
namespace {

class CudaGemm : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    std::string why;
    if (!backend_available(Device::CUDA, &why)) GTEST_SKIP() << "unproven here: " << why;
    pin_provider("gemm", GetParam());
  }
  void TearDown() override { unpin_providers(); }

  static double distance(const Tensor& got, const Tensor& want) {
    auto a = got.cpu().to_vector(), b = want.to_vector();
    EXPECT_EQ(a.size(), b.size());
    double err = 0, scale = 1e-30;
    for (size_t i = 0; i < a.size(); ++i) err += (a[i] - b[i]) * (a[i] - b[i]), scale += b[i] * b[i];
    return std::sqrt(err / scale);
  }
  static double allowed(DType t) {
    return t == kFloat64 ? 1e-13 : t == kFloat32 ? 2e-6 : t == kFloat16 ? 2e-3 : 1.2e-2;
  }

  // A batch that shares one matrix goes on sharing it.
  static bool shared(const Tensor& x) { return x.size(0) > 1 && x.strides()[0] == 0; }
  static Tensor rounded(const Tensor& x, DType t) {
    return shared(x) ? to_dtype(x.slice(0, 0, 1), t).expand(x.shape()) : to_dtype(x, t);
  }

  // The same bytes in the same layout on the device.
  static Tensor there(const Tensor& x) {
    if (shared(x)) return there(x.slice(0, 0, 1)).expand(x.shape());
    Shape order{0, 1, 2};
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return x.strides()[a] > x.strides()[b]; });
    Shape back{0, 0, 0};
    for (int64_t i = 0; i < 3; ++i) back[order[i]] = i;
    return contiguous(x.permute(order)).cuda().permute(back);
  }

  // act(alpha a b + bias) + beta c and its pre, in float64 on the CPU, of the rounded operands.
  static void check(const Tensor& a, const Tensor& b, DType t, DType c_type, double beta, const GemmOptions& o) {
    Tensor ra = rounded(a, t), rb = rounded(b, t);
    Tensor c = randn({a.size(0), a.size(1), b.size(2)}, {}, kFloat64),
           want = to_dtype(to_dtype(c, c_type), kFloat64).clone();
    GemmOptions exact = o, device = o;
    if (o.bias) exact.bias = to_dtype(o.bias, kFloat64), device.bias = o.bias.cuda();
    if (o.pre) exact.pre = empty(want.shape(), kFloat64), device.pre = empty(want.shape(), c_type, Device("cuda"));
    unpin_providers();
    gemm_into("test", to_dtype(ra, kFloat64), to_dtype(rb, kFloat64), want, beta, exact);
    pin_provider("gemm", GetParam());
    Tensor got = to_dtype(c, c_type).cuda();
    gemm_into("test", there(ra), there(rb), got, beta, device);
    double most = allowed(c_type);
    EXPECT_LE(distance(got, want), most) << "c of " << name(t) << " into " << name(c_type) << ", act " << int(o.act)
                                         << ", beta " << beta << ", bias " << o.bias.defined() << ", pre "
                                         << o.pre.defined() << ", a " << str(a.shape()) << " b " << str(b.shape());
    if (o.pre) {
      EXPECT_LE(distance(device.pre, exact.pre), most) << "pre";
    }
  }
};

TEST_P(CudaGemm, reads_every_layout) {
  manual_seed(1);
  for (DType t : {kFloat64, kFloat32, kBFloat16, kFloat16})
    for (int64_t batch : {1, 3})
      for (bool turn_a : {false, true})
        for (bool turn_b : {false, true})
          for (bool share_b : {false, true}) {
            Tensor a = turn_a ? randn({batch, 6, 5}).transpose(1, 2) : randn({batch, 5, 6});
            Tensor b = turn_b ? randn({share_b ? 1 : batch, 7, 6}).transpose(1, 2) : randn({share_b ? 1 : batch, 6, 7});
            if (share_b) b = b.expand({batch, 6, 7});
            check(a, b, t, t, 0, {.alpha = 0.5});
          }
}

TEST_P(CudaGemm, copies_operands_without_a_dense_dimension) {
  Tensor a = randn({2, 5, 12}).slice(2, 0, 12, 2), b = randn({2, 6, 8});
  Tensor ad = randn({2, 5, 12}).cuda(), want = matmul(ad.cpu().slice(2, 0, 12, 2), b);
  EXPECT_LE(distance(matmul(ad.slice(2, 0, 12, 2), b.cuda()), want), 2e-6);
}

TEST_P(CudaGemm, follows_a_product_with_every_epilogue) {
  manual_seed(2);
  for (DType t : {kFloat64, kFloat32, kBFloat16})
    for (int act = 0; act <= int(Activation::QuickGelu); ++act)
      for (double beta : {0.0, 0.5})
        for (int bias : {0, 1, 2})     // none, of the operands' dtype, of float32
          for (int pre : {0, 7, 8}) {  // none, rows of 7, rows of 8 as cuBLASLt wants them
            if (bias == 2 && t != kBFloat16) continue;
            int64_t n = pre ? pre : 7;
            GemmOptions o;
            o.act = Activation(act);
            if (bias) o.bias = to_dtype(randn({n}), bias == 1 ? t : kFloat32);
            if (pre) o.pre = empty({1});
            check(randn({2, 5, 6}), randn({2, 6, n}), t, t, beta, o);
          }
}

TEST_P(CudaGemm, widens_16_bit_operands_into_float32) {
  for (DType t : {kBFloat16, kFloat16})
    check(randn({1, 9, 33}), randn({1, 33, 10}), t, kFloat32, 1, {.bias = randn({10})});
}

TEST_P(CudaGemm, sums_of_nothing_are_bias) {
  Tensor y = empty({1, 2, 3}, kFloat32, Device("cuda"));
  gemm_into("test", empty({1, 2, 0}, kFloat32, Device("cuda")), empty({1, 0, 3}, kFloat32, Device("cuda")), y, 0,
            {.bias = tensor({1, 2, 3}, kFloat32).cuda()});
  EXPECT_EQ(y.cpu().to_vector(), (std::vector<double>{1, 2, 3, 1, 2, 3}));
}

INSTANTIATE_TEST_SUITE_P(Providers, CudaGemm, testing::Values("cublaslt", "native"),
                         [](auto& info) { return info.param; });

// In the emulator TF32 rounds as the tensor cores do: what is allowed must be seen in the result, and nothing else.
TEST(CudaTf32, is_used_when_allowed_and_for_float32_alone) {
  std::string why;
  if (!backend_available(Device::CUDA, &why)) GTEST_SKIP() << "unproven here: " << why;
  Tensor a = full({16, 16}, 1.0 + 0x1p-12, kFloat32).cuda();
  auto product = [&](DType t) { return matmul(to_dtype(a, t), to_dtype(a, t)).cpu().to_vector()[0]; };
  double exact32 = product(kFloat32), exact64 = product(kFloat64);
  EXPECT_FALSE(matmul_allow_tf32());
  set_matmul_allow_tf32(true);
  double fast32 = product(kFloat32), fast64 = product(kFloat64);
  set_matmul_allow_tf32(false);
  EXPECT_GT(exact32, 16);
  EXPECT_EQ(fast32, 16);
  EXPECT_EQ(exact64, fast64);
  EXPECT_EQ(product(kFloat32), exact32);
}

}  // namespace
}  // namespace sf
