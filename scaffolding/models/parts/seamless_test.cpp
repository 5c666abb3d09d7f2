#include "scaffolding/models/parts/seamless.h"

#include <gtest/gtest.h>

#include <numbers>

#include "scaffolding/autograd/mode.h"
#include "scaffolding/models/autoencoders/autoencoder_kl.h"
#include "scaffolding/models/autoencoders/autoencoder_tiny.h"
#include "scaffolding/models/autoencoders/tiles.h"
#include "scaffolding/models/parts/lora.h"
#include "scaffolding/models/parts/resnet.h"
#include "scaffolding/models/test_networks.h"
#include "scaffolding/ops/ops.h"

namespace sf::models {
namespace {

// x[..., H, W] with what leaves on one side coming in on the other.
Tensor rolled(const Tensor& x, int64_t down, int64_t right) {
  auto along = [](const Tensor& t, int64_t dim, int64_t by) {
    if (by == 0) return t;
    const int64_t n = t.size(dim);
    return cat({t.narrow(dim, n - by, by), t.narrow(dim, 0, n - by)}, dim);
  };
  return along(along(x, 2, down), 3, right);
}

double difference(const Tensor& a, const Tensor& b) {
  return double(amax(abs(a - b)).item()) / double(amax(abs(b)).item());
}

// How far f of a rolled picture is from the rolled f of the picture: inputs by `step`, results by `by`.
template <class F> double shift(const Tensor& x, int64_t down, int64_t right, double scale, const F& f) {
  const Tensor want = rolled(f(x), int64_t(double(down) * scale), int64_t(double(right) * scale));
  return difference(f(rolled(x, down, right)), want);
}

AutoencoderKLConfig small_vae() {
  AutoencoderKLConfig c;
  c.block_out_channels = {8, 16};
  c.down_block_types = {"DownEncoderBlock2D", "DownEncoderBlock2D"};
  c.up_block_types = {"UpDecoderBlock2D", "UpDecoderBlock2D"};
  c.norm_num_groups = 4;
  c.sample_size = int64_t(32);
  return c;
}

class Seamless : public testing::Test {
 protected:
  void SetUp() override { manual_seed(3); }
  autograd::NoGrad off_;
};

TEST_F(Seamless, AutoencodersOfARolledPictureGiveTheRolledPicture) {
  AutoencoderKL vae(small_vae());
  AutoencoderTiny tiny;
  const Tensor z = randn({1, 4, 8, 12}), picture = randn({1, 3, 32, 32});
  auto decode = [&](const Tensor& x) { return vae.decode(x); };
  auto encode = [&](const Tensor& x) { return vae.moments(x); };
  auto decode_tiny = [&](const Tensor& x) { return tiny.decode(x); };
  EXPECT_GT(shift(z, 3, 5, 2, decode), 1e-2);  // zeros beyond the borders
  EXPECT_GT(shift(picture, 4, 10, 0.5, encode), 1e-3);
  EXPECT_GT(shift(z, 3, 5, 8, decode_tiny), 1e-2);
  set_seamless(vae, {true, true});
  set_seamless(tiny, {true, true});
  EXPECT_LT(shift(z, 3, 5, 2, decode), 1e-4);
  EXPECT_LT(shift(picture, 4, 10, 0.5, encode), 1e-4);
  EXPECT_LT(shift(z, 3, 5, 8, decode_tiny), 1e-4);
  set_seamless(vae, {});
  EXPECT_GT(shift(z, 3, 5, 2, decode), 1e-2);
}

TEST_F(Seamless, AlongOneAxis) {
  AutoencoderKL vae(small_vae());
  set_seamless(vae, seamless_axes("x"));
  const Tensor z = randn({1, 4, 8, 12});
  auto decode = [&](const Tensor& x) { return vae.decode(x); };
  EXPECT_LT(shift(z, 0, 5, 2, decode), 1e-4);
  EXPECT_GT(shift(z, 3, 0, 2, decode), 1e-2);
  set_seamless(vae, seamless_axes("y"));
  EXPECT_GT(shift(z, 0, 5, 2, decode), 1e-2);
  EXPECT_LT(shift(z, 3, 0, 2, decode), 1e-4);
  EXPECT_THROW(seamless_axes("z"), ValueError);
}

TEST_F(Seamless, AUNetOfRolledLatentsGivesTheRolledNoise) {
  UNet2DConditionModel unet(test::tiny_unet());
  const Tensor x = randn({2, 4, 8, 8}), t = full({1}, 7, kInt64), text = randn({2, 5, 16});
  auto predict = [&](const Tensor& latents) { return unet.forward(latents, t, text); };
  EXPECT_GT(shift(x, 2, 6, 1, predict), 1e-3);
  set_seamless(unet, {true, true});
  EXPECT_LT(shift(x, 2, 6, 1, predict), 1e-4);
}

// Kernels that add zeros themselves give way, whatever reads the layer.
TEST_F(Seamless, EveryPartPadsAsItsConvolutionSays) {
  for (const char* mode : {"circular", "circular_x", "circular_y", "reflect"}) {
    ResnetBlock2D block(8, 16, {.temb_channels = 8, .groups = 4});
    Upsample2D up(8, 8);
    Downsample2D half(8, 8, 1), uneven(8, 8, 0);
    block.eval();
    for (nn::Conv2d* conv : {&block.conv1, &block.conv2, &up.conv, &half.conv}) conv->padding_mode = mode;
    uneven.padding_mode = mode;
    const Tensor x = to_channels_last(randn({1, 8, 6, 6})), temb = randn({1, 8});
    auto plain = [&](const nn::Conv2d& conv, const Tensor& in, const Shape& pads = {1, 1, 1, 1}) {
      return conv2d(nn::padded_by_mode(in, pads, mode), conv.weight, conv.bias, conv.stride);
    };
    const Tensor t = (*block.time_emb_proj)(silu(temb)).unsqueeze(-1).unsqueeze(-1);
    const Tensor middle = plain(block.conv1, silu(block.norm1(x))) + t;
    const Tensor want = (*block.conv_shortcut)(x) + plain(block.conv2, silu(block.norm2(middle)));
    EXPECT_LT(difference(block(x, temb), want), 1e-5) << mode;
    EXPECT_LT(difference(up(x), plain(up.conv, interpolate(x, {}, Floats{2, 2}))), 1e-5) << mode;
    EXPECT_LT(difference(half(x), plain(half.conv, x)), 1e-5) << mode;
    EXPECT_LT(difference(uneven(x), plain(uneven.conv, x, {0, 1, 0, 1})), 1e-5) << mode;
  }
}

TEST_F(Seamless, ALoraBesideAConvolutionPadsAsItDoes) {
  nn::Conv2d conv(4, 6, 3, {.padding = 1});
  const Tensor x = randn({1, 4, 5, 7}), down = randn({2, 4, 3, 3}), up = randn({6, 2, 1, 1});
  LoraTerm term;
  term.down = down, term.up = up, term.scale = 0.5;
  conv.adapt(std::make_shared<LoraPath>(conv, std::vector<LoraTerm>{term}, kFloat32, Device()));
  nn::Conv2d fused(4, 6, 3, {.padding = 1, .padding_mode = "circular"});
  const Tensor delta = matmul(up.reshape({6, 2}), down.reshape({2, 36})).reshape({6, 4, 3, 3});
  fused.weight = conv.weight + 0.5 * delta, fused.bias = conv.bias;
  EXPECT_GT(difference(conv(x), fused(x)), 1e-2);
  conv.padding_mode = "circular";
  EXPECT_LT(difference(conv(x), fused(x)), 1e-5);
}

TEST_F(Seamless, TilesGoOnBeyondTheBorder) {
  const Tensor x = randn({1, 2, 24, 40});
  const Tiling t{16, 12, 8, 24};  // of results twice as large
  auto twice = [](const Tensor& tile) { return interpolate(tile, {}, Floats{2, 2}); };
  auto tiled = [&](const Tensor& wide) { return in_tiles("tiles", wide, t, t, twice); };
  EXPECT_LT(difference(joined_at_borders(x, t.size, t.size - t.step, {true, true}, tiled), twice(x)), 1e-6);
  // Each tile has its number: beyond the last column is the last tile's, of which the first ones are less and less.
  const Tiling row{24, 24, 0, 48};
  int64_t calls = 0;
  auto numbered = [&](const Tensor& wide) {
    return in_tiles("tiles", wide, row, t, [&](const Tensor& tile) { return full_like(twice(tile), calls++); });
  };
  const Tensor joined = joined_at_borders(x, t.size, t.size - t.step, {true, false}, numbered);
  EXPECT_EQ(joined.shape(), (Shape{1, 2, 48, 80}));
  const auto line = joined.select(0, 0).select(0, 0).select(0, 0).to_vector();
  EXPECT_EQ(calls, 4);
  EXPECT_EQ(line[0], 3);
  EXPECT_EQ(line[4], 1.5);
  EXPECT_EQ(line[8], 0);
  EXPECT_EQ(line[79], 2.875);
}

TEST_F(Seamless, AutoencodersInTilesHaveNoSeam) {
  AutoencoderKL vae(small_vae());
  set_seamless(vae, {true, true});
  vae.use_tiling = true;
  const Tensor wave = sin(arange(0, 40, 1, kFloat32) * (2 * std::numbers::pi / 40)).reshape({1, 1, 1, 40});
  const Tensor z = (wave * randn({1, 4, 1, 1})).expand({1, 4, 40, 40}).contiguous();  // whose sides meet
  auto border = [](const Tensor& y) {  // between the last column and the first, beside that between others
    const int64_t w = y.size(3);
    const double at = abs(y.narrow(3, 0, 1) - y.narrow(3, w - 1, 1)).mean().item();
    return at / double(abs(y.narrow(3, 1, w - 1) - y.narrow(3, 0, w - 1)).mean().item());
  };
  const Tensor joined = vae.decode(z);
  EXPECT_EQ(joined.shape(), (Shape{1, 3, 80, 80}));
  set_seamless(vae, {});
  const Tensor apart = vae.decode(z);
  EXPECT_LT(border(joined), 3);
  EXPECT_GT(border(apart), 2 * border(joined));
  EXPECT_EQ(vae.moments(randn({1, 3, 80, 80})).shape(), (Shape{1, 8, 40, 40}));
}

}  // namespace
}  // namespace sf::models
