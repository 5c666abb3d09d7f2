#include "scaffolding/diffusion/pipelines/weight_pages.h"

#include "scaffolding/models/model.h"
#include "scaffolding/nn/streaming/held_weights.h"

namespace sf::diffusion {

void release_weight_pages(Component& network) {
  if (!network.model()) return;
  for (auto& p : nn::named_parameters(*network.model())) nn::release_pages(p.tensor);
  for (auto& b : nn::named_buffers(*network.model())) nn::release_pages(b.tensor);
}

}  // namespace sf::diffusion
