#include "scaffolding/diffusion/pipelines/ltx2/latent_filters.h"

#include <gtest/gtest.h>

#include "scaffolding/core/error.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion {
namespace {

float off_by(const Tensor& a, const Tensor& b) { return float(amax(abs(a - b)).item()); }

TEST(LatentFilters, ChannelsTakeTheStatisticsOfTheReference) {
  // diffusers' numbers: standard deviations are those of samples, 2.160247 and 2.828427
  const Tensor four = tensor({1, 2, 3, 6}).reshape({1, 1, 1, 2, 2}), two = tensor({0, 4}).reshape({1, 1, 1, 1, 2});
  EXPECT_LT(off_by(adain_filter_latent(four, two).flatten(), tensor({-0.618615, 0.690693, 2, 5.927922})), 1e-5);
  manual_seed(3);
  const Tensor latents = randn({2, 3, 2, 4, 4}), reference = 2 * randn({2, 3, 2, 2, 2}) + 5;
  const Tensor filtered = adain_filter_latent(latents, reference);
  EXPECT_LT(off_by(filtered.flatten(2).mean({2}), reference.flatten(2).mean({2})), 1e-5);
  EXPECT_LT(off_by(std(filtered.flatten(2), {2}), std(reference.flatten(2), {2})), 1e-5);
  EXPECT_EQ(off_by(adain_filter_latent(latents, reference, 0), latents), 0);
  EXPECT_LT(off_by(adain_filter_latent(latents, reference, -2), latents - 2 * (filtered - latents)), 1e-5);
  EXPECT_EQ(adain_filter_latent(latents.to(kBFloat16), reference.to(kBFloat16), 0.5).dtype(), kBFloat16);
  EXPECT_THROW(adain_filter_latent(latents, reference.narrow(1, 0, 2)), ValueError);
}

// sigmoid(4 * 0.75 * (|x| - 1)) of 0, 1 and 10: 0.047426, 0.5, 1
TEST(LatentFilters, LargeValuesAreToneMapped) {
  const Tensor x = tensor({0, 1, -10});
  EXPECT_LT(off_by(tone_map_latents(x, 1), tensor({0, 0.7, -4})), 1e-5);
  EXPECT_LT(off_by(tone_map_latents(x, 0), x), 1e-7);
  EXPECT_EQ(tone_map_latents(x.to(kBFloat16), 0.5).dtype(), kBFloat16);
  EXPECT_THROW(tone_map_latents(x, 1.5), ValueError);
}

}  // namespace
}  // namespace sf::diffusion
