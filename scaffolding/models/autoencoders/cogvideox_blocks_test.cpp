#include "scaffolding/models/autoencoders/cogvideox_blocks.h"

#include <gtest/gtest.h>

#include "scaffolding/autograd/mode.h"
#include "scaffolding/ops/ops.h"

namespace sf::models {
namespace {

float difference(const Tensor& a, const Tensor& b) { return float(amax(abs(a - b)).item()); }

class CogVideoXBlocks : public testing::Test {
 protected:
  void SetUp() override { manual_seed(5); }
  autograd::NoGrad no_grad_;
};

TEST_F(CogVideoXBlocks, AConvolutionInChunksIsTheWholeOne) {
  CogVideoXCausalConv3d conv(3, 4, 3);
  for (int64_t batch : {1, 2}) {
    const Tensor x = randn({batch, 3, 7, 4, 5});
    const Tensor padded = cat({x.narrow(2, 0, 1), x.narrow(2, 0, 1), x}, 2);
    const Tensor want = conv3d(padded, conv.conv.weight, conv.conv.bias, {1}, Shape{0, 1, 1});
    EXPECT_LT(difference(conv(x)[0], want), 1e-5);
    Tensors parts, before;
    for (auto [at, n] : {std::pair{0, 3}, {3, 1}, {4, 1}, {5, 2}}) {
      const Tensors result = conv(x.narrow(2, at, n), before.empty() ? Tensor() : before[0]);
      parts.push_back(result[0]);
      before.assign(result.begin() + 1, result.end());
    }
    EXPECT_LT(difference(cat(parts, 2), want), 1e-5);
    EXPECT_EQ(before[0].shape(), (Shape{batch, 3, 2, 4, 5}));
    EXPECT_LT(before[0].storage()->bytes, x.nbytes());  // no chunk is kept for its last frames
  }
}

// Latents are repeated before the convolutions in diffusers.
TEST_F(CogVideoXBlocks, ANormTakesLatentsOfFewerFramesAndPixels) {
  CogVideoXSpatialNorm3D norm(8, 3, 2);
  for (auto [frames, latents] : {std::pair{1, 1}, {5, 3}, {4, 2}, {9, 3}}) {
    const Tensor f = randn({2, 8, frames, 4, 6}), zq = randn({2, 3, latents, 2, 3});
    Tensor repeated = interpolate(zq, Shape{frames, 4, 6});
    if (frames > 1 && frames % 2)
      repeated = cat({interpolate(zq.narrow(2, 0, 1), Shape{1, 4, 6}),
                      interpolate(zq.narrow(2, 1, latents - 1), Shape{frames - 1, 4, 6})},
                     2);
    const Tensor want = norm.norm_layer(f) * norm.conv_y(repeated)[0] + norm.conv_b(repeated)[0];
    EXPECT_LT(difference(norm(f, zq), want), 1e-5) << frames;
    EXPECT_LT(difference(norm.with_silu(f, zq), silu(want)), 1e-5) << frames;
    EXPECT_LT(difference(norm.with_silu(to_channels_last(f), to_channels_last(zq)), silu(want)), 1e-5) << frames;
  }
}

TEST_F(CogVideoXBlocks, FramesAreHalvedAndDoubledWithoutTheFirst) {
  CogVideoXDownsample3D down(4, true);
  CogVideoXUpsample3D up(4, true);
  for (auto [frames, halved, twice] : {std::tuple{1, 1, 1}, {2, 1, 4}, {3, 2, 5}, {4, 2, 8}, {9, 5, 17}}) {
    const Tensor x = randn({2, 4, frames, 6, 4});
    EXPECT_EQ(down(x).shape(), (Shape{2, 4, halved, 3, 2}));
    EXPECT_EQ(up(x).shape(), (Shape{2, 4, twice, 12, 8}));
  }
  // Repeated before the convolution of each frame, as diffusers does it.
  const Tensor x = randn({1, 4, 3, 2, 2});
  const Tensor repeated =
      cat({interpolate(x.narrow(2, 0, 1), Shape{1, 4, 4}), interpolate(x.narrow(2, 1, 2), Shape{4, 4, 4})}, 2);
  const Tensor pictures = repeated.permute({0, 2, 1, 3, 4}).flatten(0, 1);
  const Tensor want = unflatten(up.conv(pictures), 0, {1, 5}).permute({0, 2, 1, 3, 4});
  EXPECT_LT(difference(up(x), want), 1e-5);
}

}  // namespace
}  // namespace sf::models
