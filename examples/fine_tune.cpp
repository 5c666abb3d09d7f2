// A text-to-image model goes on learning from captioned pictures: fine_tune MODEL PICTURES OUTPUT [resolution]
// PICTURES: a folder with picture.txt beside picture.png, or a metadata.jsonl. One pass;
// train_text_to_image.cpp has what a long run wants.
#include <cstdio>
#include <cstdlib>

#include "scaffolding/diffusion/diffusion.h"
#include "scaffolding/models/models.h"
#include "scaffolding/scaffolding.h"

int main(int argc, char** argv) try {
  if (argc < 4) return std::fprintf(stderr, "usage: fine_tune MODEL PICTURES OUTPUT [resolution]\n"), 2;
  auto pipe = sf::diffusion::StableDiffusionPipeline::from_pretrained(argv[1], {.dtype = sf::kFloat32});
  auto& unet = dynamic_cast<sf::models::UNet2DConditionModel&>(*pipe.unet->model());
  auto noise = sf::diffusion::make_scheduler("DDPMScheduler", pipe.scheduler->config());
  const int64_t size = argc > 4 ? std::atoll(argv[4]) : 128;
  namespace t = sf::data::transforms;
  sf::data::ImageOptions options;
  options.transform =
      t::compose({t::resize({size}), t::center_crop({size}), t::to_float(), t::normalize({0.5}, {0.5})});
  sf::data::DataLoader loader(std::make_shared<sf::data::ImageFolder>(argv[2], options),
                              {.batch_size = 4, .shuffle = true});

  sf::optim::AdamW optimizer(sf::nn::parameters(unet), {.lr = 1e-4});
  unet.train();
  for (sf::data::Batch& batch : loader) {
    sf::Tensor latents, text;
    {
      sf::autograd::NoGrad off;
      latents = pipe.vae->scaled(pipe.vae->encode(batch.image, {}));
      text = pipe.encode_prompt({.prompt = batch.caption, .guidance_scale = 1}).prompt_embeds;
    }
    auto model = [&](const sf::Tensor& x, const sf::Tensor& step, const sf::Tensor& condition) {
      return unet.forward(x, step, condition);
    };
    sf::Tensor loss = sf::diffusion::diffusion_loss(model, *noise, latents, text);
    loss.backward();
    optimizer.step();
    optimizer.zero_grad();
    std::printf("loss %.4f\n", loss.item());
  }
  unet.eval();
  sf::diffusion::save_pipeline(pipe, argv[3]);
} catch (const sf::Error& e) {
  return std::fprintf(stderr, "fine_tune: %s\n", e.what()), 1;
}
