// A picture of a prompt with a LoRA, and one with the LoRA's part of the UNet alone: lora MODEL LORA PROMPT
#include <cstdio>

#include "scaffolding/diffusion/diffusion.h"
#include "scaffolding/scaffolding.h"

int main(int argc, char** argv) try {
  if (argc < 4) return std::fprintf(stderr, "usage: lora MODEL LORA PROMPT\n"), 2;
  auto pipe = sf::diffusion::StableDiffusionPipeline::from_pretrained(argv[1]);
  sf::diffusion::use_loras(pipe, {{argv[2], 0.8}});
  auto write_picture = [&](const char* path) {
    sf::diffusion::GenerationOptions options;
    options.prompt = {argv[3]};
    options.num_inference_steps = 20;
    options.generator = {sf::make_generator()};
    options.generator[0]->manual_seed(7);
    sf::io::write_image(path, sf::diffusion::VaeImageProcessor::pictures(pipe(options).images)[0]);
  };
  write_picture("with_lora.png");
  for (auto& [component, model] : sf::diffusion::adapted_models(pipe))
    if (component != "unet") model->adapters().enable(false);
  write_picture("unet_alone.png");
} catch (const sf::Error& e) {
  return std::fprintf(stderr, "lora: %s\n", e.what()), 1;
}
