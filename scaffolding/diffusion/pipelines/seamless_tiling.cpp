#include "scaffolding/diffusion/pipelines/seamless_tiling.h"

#include <algorithm>

#include "scaffolding/core/error.h"

namespace sf::diffusion {

void set_seamless_tiling(DiffusionPipeline& pipeline, models::SeamlessAxes axes) {
  const ComponentSlots slots = pipeline.components();
  const bool has_unet = std::any_of(slots.begin(), slots.end(), [](auto& slot) { return slot.name == "unet"; });
  auto denoiser = pipeline.the_denoiser();
  auto vae = pipeline.the_autoencoder();
  SF_CHECK_AS(NotSupported, has_unet && denoiser, pipeline.name(),
              ": seamless tiling needs a UNet; transformers are told where in a picture they are");
  SF_CHECK_AS(NotSupported, denoiser->model() && (!vae || vae->model()), pipeline.name(),
              ": seamless tiling needs networks of C++");
  for (auto& slot : slots)  // ControlNets too
    if (auto* network = slot.as<Ref<Denoiser>>(); network && *network && (*network)->model())
      models::set_seamless(*(*network)->model(), axes);
  if (vae) models::set_seamless(*vae->model(), axes);
}

}  // namespace sf::diffusion
