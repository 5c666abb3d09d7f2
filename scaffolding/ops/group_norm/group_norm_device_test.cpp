// group_norm on pictures larger than the samples of the op tests: groups beyond what one block takes, in every layout
// and length of vectors. Needs a GPU or the emulator.
#include <gtest/gtest.h>

#include "scaffolding/scaffolding.h"

namespace sf {
namespace {

class CudaGroupNorm : public testing::TestWithParam<std::tuple<Shape, int64_t, DType, bool>> {
 protected:
  void SetUp() override {
    std::string why;
    if (!backend_available(Device::CUDA, &why)) GTEST_SKIP() << "unproven here: " << why;
    manual_seed(4);
  }
};

void expect_near(const Tensor& got, const Tensor& want, double tolerance, const char* what) {
  Tensor error = amax(abs(got.cpu().to(kFloat64) - want)), magnitude = amax(abs(want)) + 1e-30;
  EXPECT_LT(error.item() / magnitude.item(), tolerance) << what;
}

TEST_P(CudaGroupNorm, equals_float64) {
  auto [shape, groups, dtype, last] = GetParam();
  Tensor x = (randn(shape) * 2 + 30).to(dtype), w = randn({shape[1]}).to(dtype), b = randn({shape[1]}).to(dtype),
         r = randn(shape).to(dtype);
  if (last) x = to_channels_last(x);
  for (bool silu : {false, true}) {
    auto run = [&](const Tensor& as) {
      std::vector<Tensor> in;
      for (const Tensor& t : {x, w, b}) in.push_back(t.to(as.dtype()).to(as.device()).detach().requires_grad_());
      Tensor y = silu ? group_norm_silu(in[0], groups, in[1], in[2]) : group_norm(in[0], groups, in[1], in[2]);
      sum(y * r.to(as.dtype()).to(as.device())).backward();
      return std::vector<Tensor>{y.detach(), in[0].grad(), in[1].grad(), in[2].grad()};
    };
    auto want = run(empty({0}, kFloat64)), got = run(empty({0}, dtype).cuda()), again = run(empty({0}, dtype).cuda());
    const double tolerance = dtype == kFloat32 ? 2e-5 : 1e-2;
    const char* names[] = {"y", "dx", "dweight", "dbias"};
    for (size_t i = 0; i < 4; ++i) {
      expect_near(got[i], want[i], tolerance, names[i]);
      EXPECT_EQ(all(eq(got[i], again[i])).item(), 1) << names[i] << " has other bits the second time";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, CudaGroupNorm,
    testing::Values(std::tuple(Shape{2, 16, 100, 90}, 2, kBFloat16, true),  // vectors of 8 channels, passes
                    std::tuple(Shape{1, 20, 83, 87}, 2, kFloat32, true),    // of 4
                    std::tuple(Shape{1, 6, 150, 151}, 1, kBFloat16, true),  // of 2
                    std::tuple(Shape{1, 3, 211, 109}, 1, kFloat32, true),   // of 1
                    std::tuple(Shape{2, 1040, 4, 5}, 2, kFloat32,
                               true),  // several blocks side by side; a block per group
                    std::tuple(Shape{2, 2600, 9, 4}, 1, kFloat32, true),      // the same in passes
                    std::tuple(Shape{2, 320, 24, 25}, 32, kBFloat16, true),   // clusters: vectors of two groups
                    std::tuple(Shape{2, 640, 8, 8}, 16, kBFloat16, true),     // a block holds a group
                    std::tuple(Shape{1, 80, 61, 33}, 4, kBFloat16, true),     // a cluster does, unevenly
                    std::tuple(Shape{1, 120, 60, 61}, 4, kFloat16, true),     // passes, vectors of two groups
                    std::tuple(Shape{1, 120, 30, 31}, 4, kFloat16, true),     // one chunk
                    std::tuple(Shape{1, 64, 75, 75}, 64, kFloat32, true),     // a group per channel
                    std::tuple(Shape{3, 96, 33, 17}, 32, kBFloat16, true),    // of three
                    std::tuple(Shape{2, 8, 96, 100}, 2, kFloat32, false),     // contiguous: vectors of 4, passes
                    std::tuple(Shape{1, 4, 131, 137}, 2, kBFloat16, false),   // of 1
                    std::tuple(Shape{3, 600, 3, 8}, 2, kBFloat16, false),     // a block per group, many planes: passes
                    std::tuple(Shape{2, 32, 16, 16}, 4, kBFloat16, false)));  // a block per group

class CudaCatGroupNorm : public CudaGroupNorm {};

TEST_P(CudaCatGroupNorm, equals_one_of_both) {
  auto [shape, groups, dtype, whole] = GetParam();
  Tensor w = randn({shape[1]}).to(dtype).cuda(), b = randn({shape[1]}).to(dtype).cuda(),
         both = to_channels_last((randn(shape) * 2 + 30).to(dtype)).cuda();
  Tensor want = group_norm_silu(both, groups, w, b);
  for (int64_t near : {shape[1] / 2, shape[1] / 4 * 3, int64_t(3)}) {
    Tensor a = to_channels_last(both.narrow(1, 0, near)), c = to_channels_last(both.narrow(1, near, shape[1] - near));
    Tensor got = cat_group_norm_silu(a, c, groups, w, b);
    EXPECT_TRUE(got.is_contiguous(MemoryFormat::ChannelsLast));
    expect_near(got, want.cpu().to(kFloat64), dtype == kFloat32 ? 2e-5 : 1e-2, "y");
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, CudaCatGroupNorm,
                         testing::Values(std::tuple(Shape{2, 16, 100, 90}, 2, kBFloat16, true),
                                         std::tuple(Shape{1, 20, 83, 87}, 2, kFloat32, true),
                                         std::tuple(Shape{2, 1040, 4, 5}, 4, kFloat32, true),
                                         std::tuple(Shape{2, 96, 16, 16}, 32, kBFloat16, true),
                                         std::tuple(Shape{2, 2600, 9, 4}, 1, kFloat32, true)));

}  // namespace
}  // namespace sf
