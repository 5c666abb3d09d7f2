// What autoencoders decode in parts is given up between the parts.
#include "scaffolding/core/stopping.h"

#include <gtest/gtest.h>

#include "scaffolding/autograd/mode.h"
#include "scaffolding/diffusion/pipelines/cogvideox/test_clip_pipeline.h"
#include "scaffolding/diffusion/pipelines/stable_diffusion/test_pipeline.h"

namespace sf::diffusion {
namespace {

// How often work() asks before it is stopped at the n-th time, and whether it was.
template <class F> std::pair<int, bool> stopped_at(int n, const F& work) {
  int asked = 0;
  const StopWhen stop([&] { return ++asked == n; });
  try {
    work();
  } catch (const Stopped&) {
    return {asked, true};
  }
  return {asked, false};
}

template <class F> void stops_between_parts(int parts, const F& work) {
  EXPECT_EQ(stopped_at(0, work), std::pair(parts, false));
  EXPECT_EQ(stopped_at(2, work), std::pair(2, true));
}

TEST(Stopping, ComesBetweenTilesOfAPicture) {
  autograd::NoGrad no_grad;
  models::AutoencoderKL vae(models::test::tiny_vae());
  vae.use_tiling = true;
  vae.tile_latent_min_size = 4, vae.tile_sample_min_size = 4 << (vae.options.block_out_channels.size() - 1);
  const Tensor z = randn({1, vae.options.latent_channels, 9, 6});
  stops_between_parts(6, [&] { vae.decode(z); });  // tiles from 0, 3, 6 down and 0, 3 across
  const int64_t scale = vae.tile_sample_min_size / 4;
  stops_between_parts(6, [&] { vae.encode(randn({1, 3, 9 * scale, 6 * scale})); });
}

TEST(Stopping, ComesBetweenChunksAndTilesOfAClip) {
  autograd::NoGrad no_grad;
  models::AutoencoderKLCogVideoX vae(test::tiny_video_vae());
  const Tensor z = randn({2, 4, 6, 4, 4});
  stops_between_parts(3, [&] { vae.decode(z); });
  stops_between_parts(3, [&] { vae.decode_in_parts(z, [](const models::VideoPart&) {}); });
  vae.use_slicing = true;
  stops_between_parts(7, [&] { vae.decode(z); });  // and before the second sample
}

TEST(Stopping, ComesBetweenBlocksOfADenoiser) {
  autograd::NoGrad no_grad;
  models::UNet2DConditionModel unet(models::test::tiny_unet(4));
  const auto& o = unet.options;
  const Tensor x = randn({1, o.in_channels, 8, 8}), text = randn({1, 3, 16});
  const int blocks = int(o.down_block_types.size() + o.up_block_types.size()) + 1;
  stops_between_parts(blocks, [&] { unet.forward(x, tensor({1.0}), text); });
}

TEST(Stopping, IsAskedOfOuterOnesToo) {
  int outer = 0;
  const StopWhen a([&] { return ++outer == 2; });
  {
    const StopWhen b([] { return false; });
    stop_here("work");
    EXPECT_THROW(stop_here("work"), Stopped);
  }
  EXPECT_EQ(outer, 2);
  EXPECT_NO_THROW(stop_here("work"));
}

TEST(Stopping, OfACallEndsItsDecoding) {
  std::stop_source source;
  CogVideoXPipeline pipe = test::tiny_clips();
  CogVideoXOptions o = test::clip_options(17, 32, 32);
  o.stop = source.get_token();
  auto run = pipe.start(o);
  while (!run->done()) run->step();
  double reached = 0;
  EXPECT_THROW(run->finish_frames([&](double done) { reached = done, source.request_stop(); }), Stopped);
  EXPECT_TRUE(reached > 0 && reached < 1) << reached;
}

}  // namespace
}  // namespace sf::diffusion
