#include "scaffolding/ops/grid_sample/grid_sample.h"

#include <cmath>
#include <limits>

#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/op_test.h"

namespace sf::test {

SF_OP_TEST(grid_sample) {
  for (const char* padding : {"zeros", "border", "reflection"})
    for (bool align : {false, true}) {
      sample(randn({1, 2, 2, 3}), rand({1, 1, 3, 2}, -1.7, 1.7), "bilinear", padding, align);
      if (align == (padding[0] == 'b'))
        sample(randn({1, 1, 3, 2}), rand({1, 2, 2, 2}, -0.95, 0.95), "bicubic", padding, align);
      if (align) sample(randn({1, 1, 4, 3}), rand({1, 2, 2, 2}, -1.7, 1.7), "nearest", padding, align);
      else sample(randn({1, 1, 2, 3, 4}), rand({1, 1, 2, 2, 3}, -1.7, 1.7), "bilinear", padding);
    }
  sample(randn({2, 1, 2, 3, 2}), rand({2, 1, 1, 2, 3}, -1.7, 1.7), "nearest", "border");
  sample(randn({1, 2, 1, 1}), rand({1, 2, 2, 2}, -3, 3), "bilinear", "reflection", true);
  sample(randn({2, 3, 2, 3}).transpose(1, 3), rand({2, 1, 2, 2}, -1, 1).transpose(1, 2));
  sample(to_channels_last(randn({2, 5, 3, 2})), rand({2, 1, 2, 2}, -1.2, 1.2));
  // more places than a block has; its fixture would be large
  sample(randn({1, 2, 6, 7}), rand({1, 20, 13, 2}, -1.2, 1.2)).no_golden();
  sample(randn({2, 3, 4, 4}), rand({2, 0, 3, 2}));
  sample(randn({0, 3, 4, 4}), rand({0, 2, 3, 2}));
  rejects("grid must be [2, Ho, Wo, 2]", randn({2, 3, 4, 4}), randn({1, 2, 2, 2}));
  rejects("grid must be [2, Do, Ho, Wo, 3]", randn({2, 3, 4, 4, 4}), randn({2, 2, 2, 2, 2}));
  rejects("input must be [N, C, H, W]", randn({2, 3, 4}), randn({2, 2, 1}));
  rejects("needs a 4-D input", randn({1, 3, 4, 4, 4}), randn({1, 2, 2, 2, 3}), "bicubic");
  rejects("mode must be", randn({1, 3, 4, 4}), randn({1, 2, 2, 2}), "linear");
  rejects("padding_mode must be", randn({1, 3, 4, 4}), randn({1, 2, 2, 2}), "nearest", "zero");
  rejects("must have pixels", randn({1, 3, 0, 4}), randn({1, 2, 2, 2}));
  rejects("grid must have the dtype", randn({1, 3, 4, 4}), randint(0, 1, {1, 2, 2, 2}));
  rejects("floating-point", randint(0, 1, {1, 3, 4, 4}), randn({1, 2, 2, 2}));
}
SF_OP_TEST(affine_grid) {
  sample(randn({2, 2, 3}), Shape{2, 1, 2, 3});
  sample(randn({2, 2, 3}), Shape{2, 1, 1, 4}, true);
  sample(randn({1, 3, 4}), Shape{1, 1, 2, 1, 3});
  sample(randn({1, 4, 3}).transpose(1, 2), Shape{1, 1, 2, 2, 1}, true);
  rejects("theta must be [2, 2, 3]", randn({1, 2, 3}), Shape{2, 1, 3, 4});
  rejects("size must be positive", randn({2, 2, 3}), Shape{2, 1, 0, 4});
  rejects("size must be [N, C, H, W]", randn({2, 2, 3}), Shape{2, 1, 4});
}

namespace {

TEST(grid_sample, the_grid_of_the_identity_gives_the_picture) {
  Tensor x = arange(0, 2 * 7 * 5, 1, kFloat32).reshape({1, 2, 7, 5}), theta = eye(2, 3, kFloat32).unsqueeze(0);
  for (bool align : {false, true}) {
    Tensor y = grid_sample(x, affine_grid(theta, {1, 2, 7, 5}, align), "bilinear", "border", align);
    auto got = y.to_vector(), want = x.to_vector();
    for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-4);
  }
}

TEST(grid_sample, places_that_are_no_numbers_are_outside_and_pixels_outside_are_not_read) {
  constexpr float inf = std::numeric_limits<float>::infinity();
  Tensor x = full({1, 1, 2, 2}, inf, kFloat32), grid = tensor({NAN, 0, inf, 0, 0, 1e30, -3, -3}).reshape({1, 1, 4, 2});
  for (const char* mode : {"bilinear", "nearest"})
    EXPECT_EQ(grid_sample(x, grid, mode).to_vector(), std::vector<double>(4, 0.0)) << mode;
}

}  // namespace
}  // namespace sf::test
