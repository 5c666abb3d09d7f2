// A CogVideoX, or a Tora, of test size, whose pixels are most of what its decoder takes.
#pragma once
#include "scaffolding/diffusion/pipelines/pipelines.h"
#include "scaffolding/models/autoencoders/autoencoder_kl_cogvideox.h"
#include "scaffolding/models/transformers/tora_transformer_3d.h"

namespace sf::diffusion::test {

// Tiles of 48 x 80 pixels.
inline models::AutoencoderKLCogVideoXConfig tiny_video_vae() {
  models::AutoencoderKLCogVideoXConfig c;
  c.block_out_channels = {8, 8, 8, 8};
  c.latent_channels = 4, c.layers_per_block = 1, c.norm_num_groups = 4;
  c.sample_height = 96, c.sample_width = 160;
  return c;
}

template <class Pipeline = CogVideoXPipeline, class Transformer = models::CogVideoXTransformer3DModel>
Pipeline tiny_clips() {
  manual_seed(7);
  typename Transformer::Config c;
  c.num_attention_heads = 2, c.attention_head_dim = 16, c.in_channels = 4, c.out_channels = 4;
  c.time_embed_dim = 8, c.text_embed_dim = 10, c.num_layers = 1;
  c.sample_width = 20, c.sample_height = 12, c.sample_frames = 9, c.max_text_seq_length = 5;
  if constexpr (requires { c.flow_channels; }) c.flow_in_channels = 4, c.flow_channels = 8;
  Pipeline pipe;
  auto transformer = std::make_shared<Transformer>(c);
  auto vae = std::make_shared<models::AutoencoderKLCogVideoX>(tiny_video_vae());
  transformer->eval(), vae->eval();
  pipe.transformer = denoiser(transformer);
  pipe.vae = autoencoder(vae);
  pipe.scheduler = make_scheduler("CogVideoXDDIMScheduler", io::Object::container(io::Object::Dict));
  return pipe;
}

inline CogVideoXOptions clip_options(int64_t frames, int64_t height, int64_t width, int64_t clips = 1) {
  CogVideoXOptions o;
  Generator g = make_generator();
  g->manual_seed(11);
  o.generator = {g};
  o.prompt_embeds = zeros({clips, 5, 10});
  o.num_frames = frames, o.height = height, o.width = width;
  o.num_inference_steps = 1, o.guidance_scale = 1;
  return o;
}

}  // namespace sf::diffusion::test
