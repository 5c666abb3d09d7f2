// A pipeline of tiny random networks, for tests.
#pragma once
#include "scaffolding/diffusion/pipelines/pipelines.h"
#include "scaffolding/models/test_networks.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion::test {

// Without a text encoder: options() have embeds in place of prompts.
inline StableDiffusionPipeline tiny(int64_t channels = 8) {
  manual_seed(0);
  StableDiffusionPipeline c;
  c.unet = denoiser(std::make_shared<models::UNet2DConditionModel>(models::test::tiny_unet(channels)));
  c.vae = autoencoder(std::make_shared<models::AutoencoderKL>(models::test::tiny_vae()));
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
