#include "scaffolding/models/unets/unet_3d.h"

#include <gtest/gtest.h>

#include <cmath>

#include "scaffolding/autograd/mode.h"
#include "scaffolding/core/error.h"
#include "scaffolding/models/autoencoders/video_autoencoder.h"
#include "scaffolding/models/text_encoders/text_encoder.h"
#include "scaffolding/nn/state_dict.h"
#include "scaffolding/ops/ops.h"

namespace sf::models::video {
namespace {

void expect_gradients(nn::Module& model) {
  for (auto& p : nn::named_parameters(model)) {
    ASSERT_TRUE(p.tensor.grad()) << p.name;
    double most = 0;
    for (double g : p.tensor.grad().to_vector()) most = std::max(most, std::abs(g));
    EXPECT_GT(most, 0) << p.name;
  }
}

TEST(UNet3D, TheFirstStepReachesEveryParameter) {
  for (bool checkpointing : {false, true}) {
    UNet3DConfig c;
    c.model_channels = 8, c.norm_num_groups = 4, c.num_heads = 2, c.context_dim = 12, c.channel_mult = {1, 2};
    UNet3D unet(c);
    TextEncoder text({.vocab_size = 9, .embed_dim = 12, .num_layers = 1, .num_heads = 2, .max_length = 4});
    unet.enable_gradient_checkpointing(checkpointing), text.enable_gradient_checkpointing(checkpointing);
    const Tensor states = text(tensor(std::vector<int64_t>{1, 5, 2, 1, 7, 2}, {2, 3}));
    const Tensor y = unet(randn({2, 3, 2, 4, 6}), scalar_tensor(7), states, ones({2, 3}));
    EXPECT_EQ(y.shape(), (Shape{2, 3, 2, 4, 6}));
    mean(square(y)).backward();
    expect_gradients(unet), expect_gradients(text);
  }
}

TEST(UNet3D, AnAutoencodersHalvesMeet) {
  VideoEncoder encoder({.model_channels = 8, .channel_mult = {1, 2}, .num_heads = 2});
  VideoDecoder decoder({.model_channels = 8, .channel_mult = {1, 2}, .num_heads = 2});
  const Tensor moments = encoder(randn({1, 3, 2, 4, 6}));
  EXPECT_EQ(moments.shape(), (Shape{1, 8, 2, 2, 3}));
  EXPECT_EQ(encoder.spatial_factor(), 2);
  const Tensor y = decoder(moments.narrow(1, 0, 4));
  EXPECT_EQ(y.shape(), (Shape{1, 3, 2, 4, 6}));
  mean(square(y)).backward();
  expect_gradients(decoder);
}

TEST(UNet3D, TheSmallestLevelIsAQuarter) {
  EXPECT_EQ(SimpleUNet3D({.model_channels = 8, .num_heads = 2}).spatial_factor(), 4);
  EXPECT_EQ(UNet3D({.model_channels = 8, .channel_mult = {1}}).spatial_factor(), 1);
}

// A part of its own has a config and files, and stands in others as it is.
TEST(UNet3D, ItsPartsAreModels) {
  SimpleUNet3D unet({.model_channels = 8, .num_heads = 2});
  auto& block = unet.down_blocks[1].layers[0].resnet;
  EXPECT_EQ(block.options.in_channels, 8);
  auto made = make_model("ResBlock3D", block.config());
  EXPECT_EQ(nn::named_parameters(*made).size(), nn::named_parameters(block).size());
}

}  // namespace
}  // namespace sf::models::video
