// FreeU in a pipeline's UNet.
#pragma once
#include "scaffolding/diffusion/pipelines/pipeline.h"
#include "scaffolding/models/parts/free_u.h"

namespace sf::diffusion {

// From the next call on, in all pipelines that share the UNet; none: without it again. NotSupported for a pipeline
// without a UNet with text, of C++, ValueError for factors that are not finite.
void set_free_u(DiffusionPipeline& pipeline, const std::optional<models::FreeU>& factors);

}  // namespace sf::diffusion
