#include "scaffolding/diffusion/slerp.h"

#include <gtest/gtest.h>

#include <cmath>

#include "scaffolding/core/error.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion {

static double at(const Tensor& t, int64_t i) { return double(t.contiguous().data<float>()[i]); }

TEST(Slerp, WalksOnTheSphere) {
  Tensor x = tensor({1, 0}, kFloat32), y = tensor({0, 2}, kFloat32);
  Tensor middle = slerp(x, y, 0.5);
  EXPECT_NEAR(at(middle, 0), 1.5 * std::sqrt(0.5), 1e-6);  // the length is halfway too
  EXPECT_NEAR(at(middle, 1), 1.5 * std::sqrt(0.5), 1e-6);
  Tensor third = slerp(x, y / 2, 1. / 3);
  EXPECT_NEAR(at(third, 0), std::cos(M_PI / 6), 1e-6);
  EXPECT_NEAR(at(third, 1), std::sin(M_PI / 6), 1e-6);
}

TEST(Slerp, EndsAreTheEnds) {
  Tensor a = randn({2, 3, 4}), b = randn({2, 3, 4});
  for (auto dim : {std::optional<int64_t>(), std::optional<int64_t>(-1)})
    for (int64_t i = 0; i < a.numel(); ++i) {
      EXPECT_NEAR(at(slerp(a, b, 0, dim), i), at(a, i), 1e-5);
      EXPECT_NEAR(at(slerp(a, b, 1, dim), i), at(b, i), 1e-5);
    }
}

TEST(Slerp, KeepsTheStrengthOfNoiseAndOfEachVector) {
  Tensor a = randn({1, 4, 32, 32}), b = randn({1, 4, 32, 32});
  Tensor half = slerp(a, b, 0.5);
  EXPECT_NEAR(at(std(half.flatten()), 0), 1, 0.05);
  Tensor lengths = sqrt(sum(square(slerp(randn({1, 7, 64}), randn({1, 7, 64}), 0.5, -1)), {-1}));
  for (int64_t i = 0; i < 7; ++i) EXPECT_NEAR(at(lengths, i), 8, 2.5);
}

TEST(Slerp, ParallelOppositeAndEmptyDirectionsAreFinite) {
  Tensor a = tensor({1, 2, 3}, kFloat32);
  EXPECT_NEAR(at(slerp(a, a, 0.3), 2), 3, 1e-5);
  EXPECT_NEAR(at(slerp(a, a * 2, 0.5), 2), 4.5, 1e-5);
  for (const Tensor& b : {a * -1, zeros({3})})
    for (int64_t i = 0; i < 3; ++i) EXPECT_TRUE(std::isfinite(at(slerp(a, b, 0.5), i)));
  EXPECT_THROW(slerp(a, zeros({4}), 0.5), ValueError);
  EXPECT_THROW(slerp(a, a.to(kFloat64), 0.5), TypeError);
}

}  // namespace sf::diffusion
