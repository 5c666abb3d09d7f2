#include "scaffolding/models/unets/unet_2d_condition.h"

#include <gtest/gtest.h>

#include <map>

#include "scaffolding/core/default_device.h"
#include "scaffolding/io/test_folder.h"
#include "scaffolding/models/model.h"
#include "scaffolding/ops/op_test.h"
#include "scaffolding/ops/ops.h"

namespace sf::models {
namespace {

UNet2DConditionConfig small() {
  UNet2DConditionConfig c;
  c.block_out_channels = {16, 32};
  c.down_block_types = {"CrossAttnDownBlock2D", "DownBlock2D"};
  c.up_block_types = {"UpBlock2D", "CrossAttnUpBlock2D"};
  c.layers_per_block = int64_t(1);
  c.cross_attention_dim = int64_t(24);
  c.norm_num_groups = 8;
  c.attention_head_dim = int64_t(4);
  return c;
}

TEST(UNet2DConditionModel, ShapesOnTheMetaDevice) {
  auto model = [] {
    DefaultDevice meta(Device::Meta);
    return UNet2DConditionModel(small());
  }();
  auto input = [](const Shape& size) { return empty(size, kFloat32, Device::Meta); };
  Tensor y = model(input({2, 4, 11, 7}), input({}), input({2, 5, 24}));
  EXPECT_EQ(y.shape(), (Shape{2, 4, 11, 7}));
}

TEST(UNet2DConditionModel, HooksSeeBlocks) {
  UNet2DConditionModel model(small());
  int calls = 0;
  model.down_blocks[0].register_forward_hook(
      [&](nn::Module&, const nn::Values&, const Value&) -> Value { return ++calls, std::monostate{}; });
  model.up_blocks[1].register_forward_hook(
      [&](nn::Module&, const nn::Values&, const Value&) -> Value { return ++calls, std::monostate{}; });
  model(randn({1, 4, 8, 8}), zeros({}), randn({1, 5, 24}));
  EXPECT_EQ(calls, 2);
}

TEST(UNet2DConditionModel, RefusesWhatItDoesNotHave) {
  UNet2DConditionConfig c = small();
  c.down_block_types[1] = "KDownBlock2D";
  SF_EXPECT_ERROR(NotSupported, "UNet2DConditionModel: down_block_types 'KDownBlock2D' is not supported",
                  UNet2DConditionModel{c});
}

}  // namespace
}  // namespace sf::models
