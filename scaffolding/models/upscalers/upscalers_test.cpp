#include <gtest/gtest.h>

#include "scaffolding/autograd/mode.h"
#include "scaffolding/core/error.h"
#include "scaffolding/io/formats/safetensors.h"
#include "scaffolding/io/test_folder.h"
#include "scaffolding/models/upscalers/rrdbnet.h"
#include "scaffolding/models/upscalers/srvgg_net_compact.h"
#include "scaffolding/models/upscalers/upscale.h"
#include "scaffolding/models/upscalers/upscaler_file.h"
#include "scaffolding/nn/state_dict.h"
#include "scaffolding/ops/ops.h"

namespace sf::models::test {

namespace {

double difference(const Tensor& a, const Tensor& b) { return amax(abs(a - b)).item(); }

RRDBNet small(int64_t blocks = 2, int64_t scale = 4) {
  manual_seed(3);
  RRDBNet net({.scale = scale, .num_feat = 16, .num_block = blocks, .num_grow_ch = 16});
  net.eval();
  return net;
}

}  // namespace

TEST(Upscalers, in_place_is_the_composition) {
  RRDBNet net = small();
  SRVGGNetCompact compact({.num_feat = 16, .num_conv = 2, .upscale = 2});
  const Tensor x = rand({2, 3, 21, 30});
  const Tensor taped = net(x), compact_taped = compact(x);
  autograd::NoGrad off;
  EXPECT_LT(difference(net(x), taped), 1e-5);
  EXPECT_LT(difference(compact(x), compact_taped), 1e-5);
}

TEST(Upscalers, bands_of_rows_leave_no_seams) {
  autograd::NoGrad off;
  manual_seed(4);
  RRDBNet net({.num_feat = 64, .num_block = 1, .num_grow_ch = 16});
  const Tensor x = rand({1, 3, 300, 180});  // 220 MB of enlarged features: three bands
  const Tensor whole = net(x), upper = net(x.narrow(2, 0, 150)), lower = net(x.narrow(2, 150, 150));
  EXPECT_EQ(whole.shape(), (Shape{1, 3, 1200, 720}));
  // Rows that see nothing of the cut.
  EXPECT_LT(difference(whole.narrow(2, 0, 480), upper.narrow(2, 0, 480)), 1e-5);
  EXPECT_LT(difference(whole.narrow(2, 720, 480), lower.narrow(2, 120, 480)), 1e-5);
}

TEST(Upscalers, tiles_are_told_and_cover_everything) {
  RRDBNet net = small(1, 2);
  const Tensor x = rand({1, 3, 50, 37});
  std::vector<int64_t> told;
  const Tensor tiled = upscale_tensor(net, x, {20, 48, [&](int64_t done, int64_t tiles) {
                                                 told.push_back(done);
                                                 EXPECT_EQ(tiles, 6);
                                               }});
  EXPECT_EQ(told, (std::vector<int64_t>{1, 2, 3, 4, 5, 6}));
  EXPECT_LT(difference(tiled, upscale_tensor(net, x, {0})), 1e-5);
  EXPECT_THROW(upscale_tensor(net, x, {.tile = 4}), ValueError);
  EXPECT_THROW(upscale_tensor(net, rand({1, 4, 8, 8})), ValueError);
  EXPECT_THROW(upscale_picture(net, zeros({3, 8, 8})), ValueError);
}

class UpscalerFiles : public io::TestFolder {};

TEST_F(UpscalerFiles, are_told_by_their_tensors) {
  RRDBNet net = small();
  std::map<std::string, Tensor> tensors;
  for (auto& [name, t] : nn::state_dict(net)) tensors.emplace("params." + name, t);
  io::save_safetensors(tensors, path("net.safetensors"));
  const auto kind = recognise_upscaler(io::open_checkpoint(path("net.safetensors"))->entries());
  ASSERT_TRUE(kind);
  EXPECT_EQ(describe(*kind), "RRDBNet of 2 blocks and 16 channels, which enlarges pictures by 4");
  const Tensor x = rand({1, 3, 9, 9});
  autograd::NoGrad off;
  auto read = load_upscaler(path("net.safetensors"));
  EXPECT_EQ(difference(upscaling_model(*read).upscale(x), net(x)), 0);
  EXPECT_FALSE(recognise_upscaler({{"weight", "F32", {3}}}));
}

}  // namespace sf::models::test
