#include "scaffolding/models/unets/unet_2d_condition.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>

#include "scaffolding/core/default_device.h"
#include "scaffolding/io/test_folder.h"
#include "scaffolding/models/model.h"
#include "scaffolding/ops/op_test.h"
#include "scaffolding/ops/ops.h"

namespace sf::models {
namespace {

// "key [sizes]" of every tensor, sorted, as make_golden_models_unet.py writes them.
std::vector<std::string> keys_of(nn::Module& model) {
  std::vector<std::string> lines;
  auto add = [&](const nn::NamedTensor& t) {
    Message m;
    m << t.name << " " << t.tensor.shape();
    lines.push_back(m.str());
  };
  for (auto& t : nn::named_parameters(model)) add(t);
  for (auto& t : nn::named_buffers(model)) add(t);
  std::sort(lines.begin(), lines.end());
  return lines;
}

void expect_published_keys(const std::string& name, size_t tensors) {
  std::ifstream file(SF_SOURCE_DIR "/tests/golden/keys/" + name + ".txt");
  std::string line;
  std::getline(file, line);
  const size_t space = line.find(' ', 2);
  DefaultDevice meta(Device::Meta);
  auto model = make_model(line.substr(2, space - 2), io::parse_config(line.substr(space + 1), name));
  std::vector<std::string> wanted;
  while (std::getline(file, line)) wanted.push_back(line);
  std::sort(wanted.begin(), wanted.end());
  EXPECT_EQ(wanted.size(), tensors);
  EXPECT_EQ(keys_of(*model), wanted) << name;
}

TEST(UNet2DConditionModel, KeysOfThePublishedModels) {
  expect_published_keys("sd15_unet", 686);
  expect_published_keys("sd15_inpainting_unet", 686);
  expect_published_keys("lcm_unet", 687);
  expect_published_keys("sd21_unet", 686);
  expect_published_keys("sdxl_unet", 1680);
}

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
