#include <gtest/gtest.h>

#include "scaffolding/autograd/mode.h"
#include "scaffolding/core/error.h"
#include "scaffolding/diffusion/pipelines/components.h"
#include "scaffolding/models/autoencoders/autoencoder_kl_ltx2_video.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion {
namespace {

float difference(const Tensor& a, const Tensor& b) { return float(amax(abs(a - b)).item()); }

models::AutoencoderKLLTX2VideoConfig tiny_config() {
  models::AutoencoderKLLTX2VideoConfig c;
  c.latent_channels = 4, c.patch_size = 2;
  c.block_out_channels = {8, 16}, c.layers_per_block = {1, 1, 1};
  c.spatio_temporal_scaling = models::the_same_for_blocks(2, true);
  c.downsample_type = {"spatial", "spatiotemporal"};
  c.decoder_block_out_channels = {8, 16}, c.decoder_layers_per_block = {1, 1, 1};
  c.decoder_spatio_temporal_scaling = models::the_same_for_blocks(2, true);
  c.decoder_inject_noise = models::the_same_for_blocks(3, false);
  c.upsample_type = {"spatiotemporal", "spatial"};
  c.upsample_residual = models::the_same_for_blocks(2, false);
  c.upsample_factor = {2, 2};
  c.decoder_causal = false;
  c.spatial_compression_ratio = 8, c.temporal_compression_ratio = 2;
  return c;
}

class LTX2VideoAutoencoder : public testing::Test {
 protected:
  void SetUp() override {
    manual_seed(5);
    model->eval();
  }
  autograd::NoGrad no_grad_;
  std::shared_ptr<models::AutoencoderKLLTX2Video> model =
      std::make_shared<models::AutoencoderKLLTX2Video>(tiny_config());
  Ref<Autoencoder> vae = autoencoder(model);
};

TEST_F(LTX2VideoAutoencoder, KnowsItsLatentsByItsTensors) {
  model->latents_mean.copy_(tensor({1, 2, 3, 4}));
  model->latents_std.copy_(tensor({0.5, 1, 2, 4}));
  const Tensor z = randn({2, 4, 1, 2, 2});
  const Tensor want =
      (z - tensor({1, 2, 3, 4}).reshape({1, 4, 1, 1, 1})) / tensor({0.5, 1, 2, 4}).reshape({1, 4, 1, 1, 1});
  EXPECT_LT(difference(vae->scaled(z), want), 1e-6);
  EXPECT_LT(difference(vae->unscaled(vae->scaled(z)), z), 1e-5);
  EXPECT_EQ(vae->scale_factor(), 8);
  auto config = tiny_config();
  config.spatial_compression_ratio.reset(), config.temporal_compression_ratio.reset();
  const auto guessed = autoencoder(std::make_shared<models::AutoencoderKLLTX2Video>(config));
  EXPECT_EQ(guessed->frames_per_latent(), 4);
  EXPECT_FALSE(model->config().find("latents_mean"));  // is no field of its files
}

TEST_F(LTX2VideoAutoencoder, GivesEachNumberOnceInParts) {
  const Tensor z = randn({2, 4, 3, 3, 3});
  for (int way = 0; way < 8; ++way) {
    model->use_slicing = way & 1, model->use_tiling = way & 2, model->use_framewise_decoding = way & 4;
    model->tile_sample_min_height = model->tile_sample_min_width = 16;
    model->tile_sample_stride_height = model->tile_sample_stride_width = 8;
    model->tile_sample_min_num_frames = 4, model->tile_sample_stride_num_frames = 2;
    const Tensor whole = vae->decode(z);
    ASSERT_EQ(whole.shape(), (Shape{2, 3, 5, 24, 24}));
    Tensor together = zeros_like(whole), seen = zeros_like(whole);
    int64_t row = 0, parts = 0;
    int64_t sample = -1;
    double done = 0;
    vae->decode_in_parts(z, [&](const models::VideoPart& part) {
      const Shape& s = part.values.shape();
      if (part.sample != sample || s[3] == 24) row = 0;
      sample = part.sample, ++parts;
      auto place = [&](const Tensor& of) {
        return of.narrow(0, part.sample, s[0]).narrow(2, part.frame, s[2]).narrow(3, row, s[3]);
      };
      place(together).copy_(part.values);
      place(seen).add_(1.0);
      row += s[3];
      EXPECT_GT(part.done, done);
      done = part.done;
    });
    EXPECT_EQ(difference(together, whole), 0) << way;
    EXPECT_EQ(difference(seen, ones_like(seen)), 0) << way;
    EXPECT_EQ(done, 1);
    EXPECT_EQ(parts > (model->use_slicing ? 2 : 1), (way & 6) != 0) << way;
  }
}

TEST_F(LTX2VideoAutoencoder, IsToldATimestepOnce) {
  auto config = tiny_config();
  config.timestep_conditioning = true;
  const auto told = std::make_shared<models::AutoencoderKLLTX2Video>(config);
  const auto part = autoencoder(told);
  const Tensor z = randn({1, 4, 1, 2, 2}), timestep = tensor({0.05});
  part->tell_timestep(timestep);
  EXPECT_EQ(difference(part->decode(z), told->decode(z, timestep)), 0);
  EXPECT_THROW(part->decode(z), TypeError);
}

TEST_F(LTX2VideoAutoencoder, TakesSmallerTiles) {
  EXPECT_EQ(vae->savings().tile, 512);
  vae->save({.slicing = true, .tiling = true, .tile = 100});
  EXPECT_TRUE(model->use_slicing && model->use_tiling);
  EXPECT_EQ(model->tile_sample_min_width, 96);
  EXPECT_EQ(model->tile_sample_stride_width, 48);  // half of it
  vae->save({.tile = 512});
  EXPECT_EQ(vae->savings().tile, 96);
  vae->save({.tiling = true, .tile = 1});
  EXPECT_EQ(vae->decode(randn({1, 4, 1, 3, 3})).shape(), (Shape{1, 3, 1, 24, 24}));
}

}  // namespace
}  // namespace sf::diffusion
