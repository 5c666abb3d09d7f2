#include "scaffolding/models/unets/unet_2d.h"

#include <gtest/gtest.h>

#include "scaffolding/core/default_device.h"
#include "scaffolding/models/parts/attention_keys.h"
#include "scaffolding/models/parts/fir_resample.h"
#include "scaffolding/ops/op_test.h"
#include "scaffolding/ops/ops.h"

namespace sf::models {
namespace {

UNet2DConfig small() {
  UNet2DConfig c;
  c.block_out_channels = {8, 16};
  c.down_block_types = {"DownBlock2D", "AttnDownBlock2D"};
  c.up_block_types = {"AttnUpBlock2D", "UpBlock2D"};
  c.layers_per_block = 1;
  c.norm_num_groups = 4;
  return c;
}

TEST(UNet2DModel, ShapesOnTheMetaDevice) {
  auto model = [] {
    DefaultDevice meta(Device::Meta);
    return UNet2DModel(small());
  }();
  auto input = [](const Shape& size) { return empty(size, kFloat32, Device::Meta); };
  EXPECT_EQ(model(input({2, 3, 6, 10}), input({})).shape(), (Shape{2, 3, 6, 10}));
}

TEST(UNet2DModel, HooksSeeBlocks) {
  UNet2DModel model(small());
  int calls = 0;
  auto count = [&](nn::Module&, const nn::Values&, const Value&) -> Value { return ++calls, std::monostate{}; };
  model.down_blocks[1].register_forward_hook(count);
  model.mid_block->register_forward_hook(count);
  model.up_blocks[0].register_forward_hook(count);
  model(randn({1, 3, 8, 8}), zeros({}));
  EXPECT_EQ(calls, 3);
}

TEST(FirResample, KeepsWhatIsConstantAwayFromTheBorder) {
  const Tensor x = ones({1, 2, 6, 8});
  const Tensor half = fir_downsample_2d(x), twice = fir_upsample_2d(x);
  EXPECT_EQ(half.shape(), (Shape{1, 2, 3, 4}));
  EXPECT_EQ(twice.shape(), (Shape{1, 2, 12, 16}));
  EXPECT_EQ(half.narrow(2, 1, 1).narrow(3, 1, 2).to_vector(), std::vector<double>(4, 1.0));
  EXPECT_EQ(twice.narrow(2, 1, 10).narrow(3, 1, 14).to_vector(), std::vector<double>(280, 1.0));
  EXPECT_EQ(fir_downsample_2d(ones({1, 1, 5, 7})).shape(), (Shape{1, 1, 2, 3}));
  EXPECT_DOUBLE_EQ(half.to_vector()[0], 0.875 * 0.875);
  EXPECT_DOUBLE_EQ(twice.to_vector()[0], 0.75 * 0.75);
}

TEST(AttentionKeys, OldNamesBecomeNew) {
  EXPECT_EQ(current_attention_key("mid_block.attentions.0.proj_attn.bias"), "mid_block.attentions.0.to_out.0.bias");
  EXPECT_EQ(current_attention_key("attentions.0.query.weight"), "attentions.0.to_q.weight");
  EXPECT_EQ(current_attention_key("attentions.0.group_norm.bias"), "attentions.0.group_norm.bias");
  EXPECT_EQ(current_attention_key("encoder.key.weight"), "encoder.key.weight");
}

}  // namespace
}  // namespace sf::models
