#include "scaffolding/diffusion/pipelines/free_u.h"

#include "scaffolding/core/error.h"

namespace sf::diffusion {

void set_free_u(DiffusionPipeline& pipeline, const std::optional<models::FreeU>& factors) {
  auto denoiser = pipeline.the_denoiser();
  const bool set = denoiser && denoiser->model() && models::set_free_u(*denoiser->model(), factors);
  SF_CHECK_AS(NotSupported, set || !factors, pipeline.name(), ": FreeU needs a UNet with text, which this has not");
}

}  // namespace sf::diffusion
