#include "scaffolding/core/fuzz_target.h"
#include "scaffolding/diffusion/pipelines/lora_tags.h"
#include "scaffolding/diffusion/pipelines/prompt_embedding.h"

// A prompt as the program reads it: tags out of it first, then the weights of what is left.
SF_FUZZ_TARGET(prompt_weights) {
  const std::string_view prompt(reinterpret_cast<const char*>(data), size);
  sf::diffusion::parse_weights(prompt);
  for (auto& tag : sf::diffusion::take_lora_tags(prompt).tags) sf::diffusion::text_of(tag);
}
