// Pictures that can be laid side by side without a seam.
#pragma once
#include "scaffolding/diffusion/pipelines/pipeline.h"
#include "scaffolding/models/parts/seamless.h"

namespace sf::diffusion {

// The UNet and the autoencoder see a picture's other side beyond its border, along `axes`, until the next call of this;
// with none they see zeros again. Pipelines that share the networks share that. NotSupported for a pipeline without a
// UNet, and for networks that are called through another language.
void set_seamless_tiling(DiffusionPipeline& pipeline, models::SeamlessAxes axes);

}  // namespace sf::diffusion
