// A picture of a prompt, by a Stable Diffusion model in diffusers' layout: text_to_image MODEL PROMPT [steps]
#include <cstdio>
#include <cstdlib>

#include "scaffolding/diffusion/diffusion.h"
#include "scaffolding/scaffolding.h"

static void print_step(int64_t step, int64_t steps) {
  std::printf("%lld of %lld\n", static_cast<long long>(step), static_cast<long long>(steps));
}

int main(int argc, char** argv) try {
  if (argc < 3) return std::fprintf(stderr, "usage: text_to_image MODEL PROMPT [steps]\n"), 2;
  auto pipe = sf::diffusion::StableDiffusionPipeline::from_pretrained(argv[1]);
  sf::diffusion::GenerationOptions options;
  options.prompt = {argv[2]};
  options.num_inference_steps = argc > 3 ? std::atoi(argv[3]) : 30;
  options.generator = {sf::make_generator()};
  options.generator[0]->manual_seed(7);
  options.progress = print_step;
  auto pictures = sf::diffusion::VaeImageProcessor::pictures(pipe(options).images);
  sf::io::write_image("picture.png", pictures[0]);
} catch (const sf::Error& e) {
  return std::fprintf(stderr, "text_to_image: %s\n", e.what()), 1;
}
