// Configs of tiny networks, for tests.
#pragma once
#include "scaffolding/models/autoencoders/autoencoder_kl.h"
#include "scaffolding/models/unets/unet_2d_condition.h"

namespace sf::models::test {

// Two levels, the lower one with cross-attention to 16 numbers a token.
inline UNet2DConditionConfig tiny_unet(int64_t channels = 8) {
  UNet2DConditionConfig c;
  c.sample_size = int64_t(8);
  c.block_out_channels = {channels, 2 * channels};
  c.down_block_types = {"DownBlock2D", "CrossAttnDownBlock2D"};
  c.up_block_types = {"CrossAttnUpBlock2D", "UpBlock2D"};
  c.layers_per_block = int64_t(1);
  c.norm_num_groups = 4;
  c.cross_attention_dim = int64_t(16);
  c.attention_head_dim = int64_t(2);
  return c;
}
// Half the picture's size.
inline AutoencoderKLConfig tiny_vae() {
  AutoencoderKLConfig c;
  c.block_out_channels = {8, 8};
  c.down_block_types = {"DownEncoderBlock2D", "DownEncoderBlock2D"};
  c.up_block_types = {"UpDecoderBlock2D", "UpDecoderBlock2D"};
  c.norm_num_groups = 4;
  return c;
}

}  // namespace sf::models::test
