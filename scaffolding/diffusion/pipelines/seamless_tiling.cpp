#include "scaffolding/diffusion/pipelines/seamless_tiling.h"

#include "scaffolding/core/error.h"
#include "scaffolding/models/unets/unet_2d_condition.h"

namespace sf::diffusion {

void set_seamless_tiling(DiffusionPipeline& pipeline, models::SeamlessAxes axes) {
  auto denoiser = pipeline.the_denoiser();
  auto vae = pipeline.the_autoencoder();
  auto* unet = denoiser ? dynamic_cast<models::UNet2DConditionModel*>(denoiser->model()) : nullptr;
  SF_CHECK_AS(NotSupported, unet, pipeline.name(),
              ": seamless tiling needs a UNet2DConditionModel, which is not told where in a picture it is");
  SF_CHECK_AS(NotSupported, !vae || vae->model(), pipeline.name(), ": seamless tiling needs an autoencoder of C++");
  models::set_seamless(*unet, axes);
  if (vae) models::set_seamless(*vae->model(), axes);
}

}  // namespace sf::diffusion
