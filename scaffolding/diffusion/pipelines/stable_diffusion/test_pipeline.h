// A pipeline of tiny random networks, for tests.
#pragma once
#include "scaffolding/diffusion/pipelines/pipelines.h"
#include "scaffolding/models/autoencoders/autoencoder_kl.h"
#include "scaffolding/models/unets/unet_2d_condition.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion::test {

// Without a text encoder: options() have embeds in place of prompts.
inline StableDiffusionPipeline tiny(int64_t channels = 8) {
  manual_seed(0);
  models::UNet2DConditionConfig unet;
  unet.sample_size = int64_t(8);
  unet.block_out_channels = {channels, 2 * channels};
  unet.down_block_types = {"DownBlock2D", "CrossAttnDownBlock2D"};
  unet.up_block_types = {"CrossAttnUpBlock2D", "UpBlock2D"};
  unet.layers_per_block = int64_t(1);
  unet.norm_num_groups = 4;
  unet.cross_attention_dim = int64_t(16);
  unet.attention_head_dim = int64_t(2);
  models::AutoencoderKLConfig vae;
  vae.block_out_channels = {8, 8};
  vae.down_block_types = {"DownEncoderBlock2D", "DownEncoderBlock2D"};
  vae.up_block_types = {"UpDecoderBlock2D", "UpDecoderBlock2D"};
  vae.norm_num_groups = 4;
  StableDiffusionPipeline c;
  c.unet = denoiser(std::make_shared<models::UNet2DConditionModel>(unet));
  c.vae = autoencoder(std::make_shared<models::AutoencoderKL>(vae));
  c.scheduler = make_scheduler("DDIMScheduler", io::Object::container(io::Object::Dict));
  return c;
}

inline GenerationOptions options() {
  GenerationOptions o;
  o.num_inference_steps = 3;
  o.prompt_embeds = ones({2, 5, 16});
  Generator g = make_generator();
  g->manual_seed(1);
  o.generator = {g};
  return o;
}

}  // namespace sf::diffusion::test
