#include "scaffolding/server/jobs/preview.h"

#include <gtest/gtest.h>

#include "scaffolding/ops/ops.h"

namespace sf::server {
namespace {

// Colours that are a linear map of latents are found again.
TEST(LatentColours, LearnsALinearMap) {
  Tensor latents = empty({1, 2, 4, 4}, kFloat32), frame = empty({32, 32, 3}, kUInt8);
  auto* x = latents.data<float>();
  for (int64_t i = 0; i < 32; ++i) x[i] = float((i * 7) % 11) / 11 - 0.5f;
  for (int64_t i = 0; i < 32; ++i)
    for (int64_t j = 0; j < 32; ++j) {
      const float a = x[i / 8 * 4 + j / 8], b = x[16 + i / 8 * 4 + j / 8];
      auto* p = frame.data<uint8_t>() + (i * 32 + j) * 3;
      p[0] = uint8_t(128 + 100 * a), p[1] = uint8_t(128 + 100 * b), p[2] = uint8_t(128 - 60 * a + 40 * b);
    }
  LatentColours colours;
  EXPECT_FALSE(colours.map(2));
  colours.learn(latents, frame);
  EXPECT_FALSE(colours.map(4));
  ASSERT_TRUE(colours.map(2));
  const Tensor small = colours.map(2)->picture(latents);
  EXPECT_EQ(small.shape(), (Shape{3, 4, 4}));
  for (int64_t i = 0; i < 4; ++i)
    for (int64_t j = 0; j < 4; ++j)
      for (int64_t k = 0; k < 3; ++k)
        EXPECT_NEAR(small[k][i][j].item(), frame[i * 8][j * 8][k].item(), 2) << i << " " << j << " " << k;
}

TEST(LatentColours, PassesOverWhatDoesNotFit) {
  LatentColours colours;
  colours.learn(zeros({1, 4, 4}), zeros({32, 32, 3}, kUInt8));
  colours.learn(zeros({1, 4, 4, 4}), zeros({33, 32, 3}, kUInt8));
  EXPECT_FALSE(colours.map(4));
}

}  // namespace
}  // namespace sf::server
