#include "scaffolding/diffusion/pipelines/weight_pages.h"

#include "scaffolding/backend/cpu/packed_weights.h"
#include "scaffolding/io/file.h"
#include "scaffolding/models/model.h"

namespace sf::diffusion {

void release_weight_pages(Component& network) {
  if (!network.model()) return;
  auto release = [](const Tensor& t) {
    if (!t.storage() || !t.device().is_cpu()) return;
    if (t.storage()->packed) cpu::forget_packed(t.impl()->data, t.nbytes());
    io::release_mapped(t.impl()->data, t.nbytes());
  };
  for (auto& p : nn::named_parameters(*network.model())) release(p.tensor);
  for (auto& b : nn::named_buffers(*network.model())) release(b.tensor);
}

}  // namespace sf::diffusion
