#include "scaffolding/diffusion/pipelines/weight_pages.h"

#include "scaffolding/backend/cpu/lean_memory.h"
#include "scaffolding/models/model.h"
#include "scaffolding/nn/streaming/held_weights.h"

namespace sf::diffusion {

size_t weight_bytes(Component& network) {
  size_t bytes = 0;
  if (network.model())
    for (auto& p : nn::parameters(*network.model())) bytes += p.nbytes();
  return bytes;
}

void release_weight_pages(Component& network, bool small_ones) {
  if (!network.model()) return;
  const bool keeps_packed = !small_ones && cpu::KeptWhole::takes(weight_bytes(network));
  for (auto& t : nn::parameters_and_buffers(*network.model())) nn::release_pages(t, false, keeps_packed);
}

}  // namespace sf::diffusion
