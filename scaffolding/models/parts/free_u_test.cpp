#include "scaffolding/models/parts/free_u.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "scaffolding/ops/ops.h"

namespace sf::models::test {
namespace {

// By the definition: each of the four frequencies' amplitude, from all pixels, in float64.
TEST(FreeU, the_lowest_frequencies_are_scaled) {
  manual_seed(4);
  for (auto [height, width] : {std::pair(int64_t(4), int64_t(6)), {5, 3}, {1, 4}, {2, 2}, {1, 1}}) {
    const Tensor x = randn({2, 3, height, width}), y = scale_lowest_frequencies(x, 0.25);
    ASSERT_EQ(y.shape(), x.shape());
    const Tensor values = x.contiguous(), scaled = y.contiguous();
    const float *from = values.data<float>(), *got = scaled.data<float>();
    for (int64_t plane = 0; plane < 6; ++plane, from += height * width, got += height * width)
      for (int64_t r = 0; r < height; ++r)
        for (int64_t c = 0; c < width; ++c) {
          double want = from[r * width + c];
          for (int64_t down = 0; down < std::min<int64_t>(2, height); ++down)
            for (int64_t right = 0; right < std::min<int64_t>(2, width); ++right)
              for (int64_t i = 0; i < height; ++i)
                for (int64_t j = 0; j < width; ++j) {
                  const double turns =
                      double(down * (r - i)) / double(height) + double(right * (c - j)) / double(width);
                  want -= 0.75 * from[i * width + j] * std::cos(2 * std::numbers::pi * turns) / double(height * width);
                }
          EXPECT_NEAR(got[r * width + c], want, 1e-5) << height << ' ' << width;
        }
  }
}

TEST(FreeU, half_of_the_channels_are_the_backbone) {
  Tensor h = full({1, 5, 2, 2}, 1), skip = full({1, 3, 2, 2}, 2);
  FreeUStage{1.5, 0.5}.apply(h, skip);
  for (int64_t c = 0; c < 5; ++c) EXPECT_EQ(amax(h.slice(1, c, c + 1)).item(), c < 2 ? 1.5 : 1);
  EXPECT_NEAR(amax(skip).item(), 1, 1e-6);
}

}  // namespace
}  // namespace sf::models::test
