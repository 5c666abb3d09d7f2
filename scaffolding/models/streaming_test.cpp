// Networks whose weights are streamed, beside the same ones on the device. Needs a GPU or the emulator; skips without.
#include <gtest/gtest.h>

#include "scaffolding/autograd/mode.h"
#include "scaffolding/backend/backend.h"
#include "scaffolding/models/parts/packed_projections.h"
#include "scaffolding/models/transformers/dit_transformer_2d.h"
#include "scaffolding/models/unets/unet_2d_condition.h"
#include "scaffolding/nn/streaming/streamer.h"
#include "scaffolding/ops/op_test.h"
#include "scaffolding/ops/ops.h"

namespace sf::models {
namespace {

const Device kGpu("cuda");

class CudaStreamedModels : public testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    if (!backend_available(Device::CUDA, &why)) GTEST_SKIP() << "unproven here: " << why;
  }
  // Bits of the model on the device, then streamed by blocks and by parts; packed as pipelines have it, and not.
  void compare(Model& model, const std::function<Tensor()>& call) {
    model.eval();
    for (bool packed : {false, true}) {
      if (packed) pack_projections(model);
      nn::to(model, {.device = kGpu});
      if (packed) pack_projections(model);
      const auto want = call().cpu().to_vector();
      nn::to(model, {.device = Device()});
      if (packed) pack_projections(model);
      for (auto level : {nn::StreamLevel::Block, nn::StreamLevel::Leaf}) {
        nn::Streamer s(model, {.device = kGpu, .level = level});
        for (int i = 0; i < 3; ++i)
          EXPECT_EQ(call().cpu().to_vector(), want) << packed << " " << int(level) << " " << i;
        const nn::StreamStatistics before = s.statistics();
        call();
        const nn::StreamStatistics now = s.statistics();
        EXPECT_EQ(now.copied_bytes - before.copied_bytes, now.weight_bytes - now.resident_bytes);
        EXPECT_EQ(now.misses, before.misses);
        EXPECT_GT(now.groups, 5);
        EXPECT_LT(now.resident_bytes, now.weight_bytes / 2);
      }
    }
  }
  autograd::NoGrad off_;
};

TEST_F(CudaStreamedModels, a_unet) {
  UNet2DConditionConfig c;
  c.block_out_channels = {32, 64};
  c.down_block_types = {"CrossAttnDownBlock2D", "DownBlock2D"};
  c.up_block_types = {"UpBlock2D", "CrossAttnUpBlock2D"};
  c.layers_per_block = int64_t(1);
  c.cross_attention_dim = int64_t(24);
  c.norm_num_groups = 8;
  c.attention_head_dim = int64_t(4);
  UNet2DConditionModel model(c);
  const Tensor x = randn({2, 4, 8, 8}).cuda(), text = randn({2, 5, 24}).cuda(), t = full({}, 7, kInt64).cuda();
  compare(model, [&] { return model(x, t, text); });
}

TEST_F(CudaStreamedModels, a_dit) {
  DiTTransformer2DConfig c;
  c.num_layers = 6, c.num_attention_heads = 2, c.attention_head_dim = 16, c.sample_size = 8;
  c.num_embeds_ada_norm = 10;
  DiTTransformer2DModel model(c);
  const Tensor x = randn({2, 4, 8, 8}).cuda(), t = full({2}, 7, kInt64).cuda(), of = full({2}, 3, kInt64).cuda();
  compare(model, [&] { return model(x, t, of); });
}

}  // namespace
}  // namespace sf::models
