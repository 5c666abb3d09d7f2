// Products of float16 on tiles: as exact as those of float16 widened to float32, and the same where numbers do not
// split.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>

#include "scaffolding/autograd/mode.h"
#include "scaffolding/core/provider.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/matmul/matmul.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/random/random.h"
#include "scaffolding/ops/view/view.h"

namespace sf {
namespace {

class HalfProduct : public testing::Test {
 protected:
  void SetUp() override {
    for (int i = 0; i < gemm.count(Device::CPU); ++i) {
      const std::string label = provider_label(gemm.entry(Device::CPU, i));
      if (label == "native-avx512amx" || label == "native-amx_emulated") tiles_ = label;
      else if (label.starts_with("native") && widened_.empty()) widened_ = label;
    }
    if (tiles_.empty()) tiles_ = widened_;  // what serves where there are none
    manual_seed(5);
  }
  void TearDown() override { unpin_providers(); }

  // In float32: what float16 rounds off would hide what is compared.
  Tensor product(const std::string& provider, const Tensor& a, const Tensor& b) {
    autograd::NoGrad off;
    pin_provider("*", provider);
    Tensor c = empty({1, a.size(0), b.size(1)}, kFloat32);
    gemm_into("matmul", a.unsqueeze(0), b.unsqueeze(0), c, 0);
    unpin_providers();
    return c.select(0, 0);
  }
  static double error(const Tensor& got, const Tensor& want) {
    auto x = to_dtype(got, kFloat64).to_vector(), y = want.to_vector();
    double off = 0, size = 0;
    for (size_t i = 0; i < x.size(); ++i) off += (x[i] - y[i]) * (x[i] - y[i]), size += y[i] * y[i];
    return std::sqrt(off / size);
  }
  std::string tiles_, widened_;
};

TEST_F(HalfProduct, no_less_exact_than_float32) {
  for (auto [m, k, n] : {std::array<int64_t, 3>{64, 256, 48}, {33, 1000, 70}, {96, 513, 31}})
    for (int kind = 0; kind < 3; ++kind) {
      auto draw = [&](const Shape& size) {
        Tensor x = randn(size);
        return to_dtype(kind == 0 ? x : kind == 1 ? abs(x) : mul(x, exp(randn(size))), kFloat16);
      };
      for (bool turned : {false, true}) {
        Tensor a = turned ? draw({k, m}).t() : draw({m, k}), b = turned ? draw({n, k}).t() : draw({k, n});
        Tensor want = matmul(to_dtype(a, kFloat64), to_dtype(b, kFloat64));
        EXPECT_LE(error(product(tiles_, a, b), want), 1.2 * error(product(widened_, a, b), want))
            << m << " " << k << " " << n << ", kind " << kind << ", turned " << turned;
      }
    }
}

TEST_F(HalfProduct, every_finite_number_splits) {
  // Times one: each of the 63488 comes back.
  const int64_t n = 256;
  Tensor x = empty({n, n}, kFloat16), one = to_dtype(eye(n), kFloat16);
  for (int64_t i = 0; i < n * n; ++i) x.data<Half>()[i].bits = uint16_t(i);
  x = where(isfinite(x), x, zeros({}, kFloat16));
  EXPECT_EQ(product(tiles_, x, one).to_vector(), x.to_vector());
  EXPECT_EQ(product(tiles_, one, x).to_vector(), x.to_vector());
}

TEST_F(HalfProduct, infinities_and_nan) {
  for (double what : {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()})
    for (bool of_b : {false, true}) {
      Tensor a = to_dtype(randn({64, 300}), kFloat16), b = to_dtype(randn({300, 64}), kFloat16);
      (of_b ? b : a).select(0, 17).select(0, 3).fill_(what);
      auto x = product(tiles_, a, b).to_vector(), y = product(widened_, a, b).to_vector();
      for (size_t i = 0; i < x.size(); ++i)
        ASSERT_TRUE(std::isnan(y[i]) ? std::isnan(x[i]) : std::isinf(y[i]) ? x[i] == y[i] : std::isfinite(x[i])) << i;
    }
}

TEST_F(HalfProduct, an_infinity_beside_a_weight_that_is_kept) {
  autograd::NoGrad off;
  Tensor w = to_dtype(randn({64, 300}), kFloat16), x = to_dtype(randn({40, 300}), kFloat16), with = x.clone();
  with.select(0, 17).select(0, 3).fill_(std::numeric_limits<double>::infinity());
  pin_provider("*", tiles_);
  const auto before = linear(x, w).to_vector(), between = linear(with, w).to_vector(), after = linear(x, w).to_vector();
  EXPECT_EQ(before, after);
  for (size_t i = 0; i < before.size(); ++i) {
    if (i / 64 == 17) EXPECT_TRUE(std::isinf(between[i])) << i;
    else EXPECT_NEAR(between[i], before[i], 2e-3 * std::abs(before[i]) + 1e-2) << i;
  }
}

}  // namespace
}  // namespace sf
