// Convolutions of bfloat16 on tiles and both their gradients, against float64 of the same numbers.
#include "scaffolding/autograd/engine.h"
#include "scaffolding/core/printing.h"
#include "scaffolding/ops/matmul/test_tiles.h"

namespace sf::test {
namespace {

struct Case {
  Shape x;
  int64_t out;
  Shape kernel, stride, padding, dilation;
  int64_t groups = 1;
};

ConvShape shape_of(const Case& c) {
  ConvShape s;
  for (int64_t i = 0; i < c.kernel.size(); ++i)
    s.stride[i] = c.stride[i], s.padding[i] = c.padding[i], s.dilation[i] = c.dilation[i];
  s.groups = c.groups;
  return s;
}

// y and the gradients of x and of the weight at dy, by convolutions of float64; of absolute values they are what was
// added up.
Tensors want(const Case& c, const Tensor& x, const Tensor& weight, const Tensor& dy) {
  autograd::GradMode on(true);
  const Tensor in = x.clone().requires_grad_(), w = weight.clone().requires_grad_();
  const Tensor y = c.kernel.size() == 2 ? conv2d(in, w, {}, c.stride, ConvPadding(c.padding), c.dilation, c.groups)
                                        : conv3d(in, w, {}, c.stride, ConvPadding(c.padding), c.dilation, c.groups);
  const Tensors gradients = autograd::grad({y}, {in, w}, {dy});
  return {y.detach(), gradients[0], gradients[1]};
}
void expect_near(const char* what, const Tensor& got, const Tensor& exact, const Tensor& sizes, const Case& c) {
  const double rounding = got.dtype() == kBFloat16 ? 0x1p-8 : 0x1p-23;
  EXPECT_LE(amax(abs(got.to(kFloat64) - exact) / (sizes * 1e-6 + abs(exact) * rounding + 1e-6)).item(), 1)
      << what << ", " << c.x << " to " << c.out << ", kernel " << c.kernel << ", padding " << c.padding << ", "
      << got.dtype();
}
Shape results(const Case& c) {
  Shape y{c.x[0], c.out};
  for (int64_t i = 0; i < c.kernel.size(); ++i)
    y.push_back((c.x[i + 2] + 2 * c.padding[i] - c.dilation[i] * (c.kernel[i] - 1) - 1) / c.stride[i] + 1);
  return y;
}

class ConvTiles : public testing::Test {
  autograd::NoGrad off_;

 protected:
  void SetUp() override { manual_seed(5); }
};

void expect_right(const Case& c) {
  Shape size{c.out, c.x[1] / c.groups};
  for (int64_t k : c.kernel) size.push_back(k);
  const Tensor x = randn(c.x).to(kBFloat16), w = randn(size).to(kBFloat16), dy = randn(results(c)).to(kBFloat16);
  auto wide = [](const Tensor& a) { return a.to(kFloat64); };
  const Tensors exact = want(c, wide(x), wide(w), wide(dy)), sizes = want(c, abs(wide(x)), abs(wide(w)), abs(wide(dy)));
  for (bool last : {false, true})
    for (DType t : {kFloat32, kBFloat16}) {
      const auto lie = [&](const Tensor& a) { return last && a.ndim() == 4 ? to_channels_last(a) : a; };
      const Tensor dw = lie(full(size, NAN, t)), db = full({c.out}, NAN);
      call(tile_kernel(conv_backward_weights),
           ConvBackwardWeights{.x = lie(x), .dy = lie(dy), .dweight = dw, .dbias = db, .shape = shape_of(c)});
      expect_near("gradient of the weight", dw, exact[2], sizes[2], c);
      Shape all{0};
      for (int64_t i = 2; i < dy.ndim(); ++i) all.push_back(i);
      EXPECT_LE(amax(abs(wide(db) - wide(dy).sum(all))).item(), 1e-2) << c.x;
      if (t == kFloat32) continue;
      const Tensor y = lie(full(dy.shape(), NAN, t)), dx = lie(full(c.x, NAN, t));
      call(tile_kernel(conv_forward), ConvForward{.x = lie(x), .weight = lie(w), .y = y, .shape = shape_of(c)});
      expect_near("forward", y, exact[0], sizes[0], c);
      call(tile_kernel(conv_backward_data),
           ConvBackwardData{.dy = lie(dy), .weight = lie(w), .dx = dx, .shape = shape_of(c)});
      expect_near("gradient of the input", dx, exact[1], sizes[1], c);
    }
}

TEST_F(ConvTiles, of_every_width_and_number_of_channels) {
  for (int64_t width : {1, 2, 7, 16, 31, 33, 66})
    for (auto [in, out] : {std::pair<int64_t, int64_t>{32, 32}, {17, 40}, {50, 16}, {96, 70}})
      expect_right({{2, in, 5, width}, out, {3, 3}, {1, 1}, {1, 1}, {1, 1}});
}

TEST_F(ConvTiles, of_kernels_paddings_dilations_and_groups) {
  expect_right({{1, 32, 9, 11}, 24, {1, 2}, {1, 1}, {0, 0}, {1, 1}});
  expect_right({{1, 32, 9, 11}, 24, {2, 1}, {1, 1}, {0, 3}, {1, 1}});
  expect_right({{1, 40, 12, 10}, 33, {3, 3}, {1, 1}, {0, 0}, {2, 3}});
  expect_right({{3, 32, 6, 6}, 32, {5, 4}, {1, 1}, {2, 3}, {1, 1}});
  expect_right({{2, 128, 8, 9}, 96, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 2});
  expect_right({{1, 64, 1, 40}, 64, {1, 7}, {1, 1}, {0, 3}, {1, 1}});
}

TEST_F(ConvTiles, of_frames_and_taps_over_time) {
  for (int64_t stride : {1, 2})
    for (int64_t padding : {0, 1, 2})
      expect_right({{2, 33, 5, 6, 7}, 34, {3, 3, 3}, {stride, 1, 1}, {padding, 1, 1}, {1, 1, 1}});
  expect_right({{1, 32, 4, 5, 9}, 16, {2, 1, 3}, {1, 1, 1}, {1, 0, 1}, {2, 1, 1}});
}

// More pixels than stay packed at once, more channels than one block of sums, and blocks of many small pictures.
TEST_F(ConvTiles, of_more_than_is_held_at_once) {
  expect_right({{2, 16, 512, 260}, 32, {1, 2}, {1, 1}, {0, 0}, {1, 1}});
  expect_right({{1, 320, 6, 5}, 352, {3, 3}, {1, 1}, {1, 1}, {1, 1}});
  expect_right({{40, 32, 4, 4}, 32, {3, 3}, {1, 1}, {1, 1}, {1, 1}});
}

}  // namespace
}  // namespace sf::test
