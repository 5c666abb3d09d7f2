#include "scaffolding/server/jobs/masks.h"

#include <gtest/gtest.h>

#include "scaffolding/ops/ops.h"

namespace sf::server {
namespace {

Tensor square(int64_t size, int64_t begin, int64_t end) {
  Tensor mask = zeros({1, size, size}, kUInt8);
  for (int64_t y = begin; y < end; ++y)
    for (int64_t x = begin; x < end; ++x) mask.data<uint8_t>()[y * size + x] = 255;
  return mask;
}

TEST(Masks, ABlurIsSoftAndKeepsItsMass) {
  const Tensor mask = square(64, 24, 40), soft = blurred_mask(mask, 4);
  EXPECT_EQ(blurred_mask(mask, 0).data<uint8_t>(), mask.data<uint8_t>());
  EXPECT_NEAR(soft[0][32][24].item(), 127, 16);
  EXPECT_EQ(soft[0][2][2].item(), 0);
  const double before = mask.to(kFloat32).sum().item(), after = soft.to(kFloat32).sum().item();
  EXPECT_NEAR(after / before, 1, 0.02);
}

TEST(Masks, WhatIsCoveredTakesTheColourAround) {
  Tensor picture = full({3, 64, 64}, 200, kUInt8);
  const Tensor mask = square(64, 24, 40);
  for (int64_t c = 0; c < 3; ++c)
    for (int64_t i = 0; i < 64 * 64; ++i)
      if (mask.data<uint8_t>()[i]) picture.data<uint8_t>()[c * 64 * 64 + i] = 0;
  const Tensor filled = filled_picture(picture, mask);
  for (int64_t i = 0; i < 3 * 64 * 64; ++i) ASSERT_NEAR(filled.data<uint8_t>()[i], 200, 2) << i;
  // and where everything is covered, grey
  EXPECT_NEAR(filled_picture(picture, full({1, 64, 64}, 255, kUInt8))[0][0][0].item(), 128, 1);
}

}  // namespace
}  // namespace sf::server
