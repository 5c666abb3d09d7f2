// Networks whose weights are streamed, beside the same ones on the device. Needs a GPU or the emulator; skips without.
#include <gtest/gtest.h>

#include <set>

#include "scaffolding/autograd/mode.h"
#include "scaffolding/backend/backend.h"
#include "scaffolding/core/provider.h"
#include "scaffolding/models/parts/packed_projections.h"
#include "scaffolding/models/transformers/cogvideox_transformer_3d.h"
#include "scaffolding/models/transformers/dit_transformer_2d.h"
#include "scaffolding/models/unets/unet_2d_condition.h"
#include "scaffolding/nn/streaming/layerwise_casting.h"
#include "scaffolding/nn/streaming/streamed_graph.h"
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
  // The emulator has the same bits however many projections are one product; a GPU has not.
  static int gemm_calls(const std::function<Tensor()>& call) {
    int count = 0;
    KernelWatcher watch([&](const KernelCall& c) { count += std::string_view(c.table.name()) == "gemm"; });
    call();
    return count;
  }
  // Bits of the model on the device, then streamed by blocks and by parts; packed as pipelines have it, and not.
  void compare(Model& model, const std::function<Tensor()>& call) {
    model.eval();
    for (bool packed : {false, true}) {
      if (packed) pack_projections(model);
      nn::to(model, {.device = kGpu});
      if (packed) pack_projections(model);
      const auto want = call().cpu().to_vector();
      const int products = gemm_calls(call);
      nn::to(model, {.device = Device()});
      for (auto level : {nn::StreamLevel::Block, nn::StreamLevel::Leaf}) {
        nn::Streamer s(model, {.device = kGpu, .level = level});
        if (packed) pack_projections(model);
        for (int i = 0; i < 2; ++i)
          EXPECT_EQ(call().cpu().to_vector(), want) << packed << " " << int(level) << " " << i;
        EXPECT_EQ(gemm_calls(call), products) << packed << " " << int(level);
        const nn::StreamStatistics before = s.statistics();
        call();
        const nn::StreamStatistics now = s.statistics();
        EXPECT_EQ(now.copied_bytes - before.copied_bytes, now.weight_bytes - now.resident_bytes);
        EXPECT_EQ(now.misses, before.misses);
        Tensor y;
        nn::StreamedGraph graph(s, [&] { y = call(); }, {.warmup = 0});
        graph.replay();
        graph.replay();
        EXPECT_EQ(y.cpu().to_vector(), want) << packed << " " << int(level);
        EXPECT_GT(now.groups, 5);
        EXPECT_LT(now.resident_bytes, now.weight_bytes / 2);
      }
    }
  }
  // Weights stored in a narrower dtype, streamed or not and captured or not: the bits of a model with rounded weights
  // that do not lie side by side.
  void compare_cast(Model& model, DType storage, const std::function<Tensor()>& call) {
    model.eval();
    const std::set<std::string> cast{"Linear", "Embedding", "Conv2d"};
    for (auto& m : nn::named_modules(model))
      if (cast.count(m.module->type()) && m.name.find("norm") == m.name.npos)
        for (auto& p : nn::named_parameters(*m.module, "", false))
          p.tensor.copy_(p.tensor.detach().to(storage).to(kFloat32));
    nn::to(model, {.device = kGpu});
    const auto want = call().cpu().to_vector();
    nn::to(model, {.device = Device()});
    int64_t wide = 0;
    for (auto& p : nn::named_parameters(model)) wide += int64_t(p.tensor.nbytes());
    nn::LayerwiseCasting casting(model, storage, kFloat32, {"norm"});
    EXPECT_GT(casting.tensors(), 20);
    nn::to(model, {.device = kGpu});
    EXPECT_EQ(call().cpu().to_vector(), want);
    nn::to(model, {.device = Device()});
    for (auto level : {nn::StreamLevel::Block, nn::StreamLevel::Leaf})
      for (int64_t stay : {int64_t(0), int64_t(1) << 40}) {
        if (stay && level == nn::StreamLevel::Leaf) continue;  // nothing would be streamed at either level
        nn::Streamer s(model, {.device = kGpu, .level = level, .resident_bytes = stay});
        EXPECT_LT(s.statistics().weight_bytes, wide * 4 / 5);
        Tensor y = call();
        EXPECT_EQ(y.cpu().to_vector(), want) << int(level) << stay << " before the capture";
        nn::StreamedGraph graph(s, [&] { y = call(); }, {.warmup = 0});
        graph.replay();
        EXPECT_EQ(y.cpu().to_vector(), want) << int(level) << stay;
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
  for (DType storage : {kFloat16, kFloat8E4M3}) {
    UNet2DConditionModel other(c);
    compare_cast(other, storage, [&] { return other(x, t, text); });
  }
}

TEST_F(CudaStreamedModels, a_dit) {
  DiTTransformer2DConfig c;
  c.num_layers = 6, c.num_attention_heads = 2, c.attention_head_dim = 16, c.sample_size = 8;
  c.num_embeds_ada_norm = 10;
  DiTTransformer2DModel model(c);
  const Tensor x = randn({2, 4, 8, 8}).cuda(), t = full({2}, 7, kInt64).cuda(), of = full({2}, 3, kInt64).cuda();
  compare(model, [&] { return model(x, t, of); });
  DiTTransformer2DModel other(c);
  compare_cast(other, kFloat16, [&] { return other(x, t, of); });
}

TEST_F(CudaStreamedModels, a_cogvideox) {
  CogVideoXTransformer3DConfig c;
  c.num_layers = 6, c.num_attention_heads = 2, c.attention_head_dim = 16, c.in_channels = 4, c.out_channels = 4;
  c.time_embed_dim = 16, c.text_embed_dim = 12, c.sample_width = 8, c.sample_height = 8;
  c.use_rotary_positional_embeddings = true;
  CogVideoXTransformer3DModel model(c);
  const Tensor x = randn({2, 2, 4, 4, 6}).cuda(), text = randn({2, 5, 12}).cuda(), t = full({2}, 7, kInt64).cuda(),
               rotary = rotary_positions_3d(16, {.size = {2, 2, 3}}, kGpu);
  compare(model, [&] { return model(x, text, t, Tensor(), rotary); });
  CogVideoXTransformer3DModel other(c);
  compare_cast(other, kFloat16, [&] { return other(x, text, t, Tensor(), rotary); });
}

}  // namespace
}  // namespace sf::models
