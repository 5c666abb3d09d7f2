// What LTX2LatentUpsamplePipeline does with latents [B, C, T, H, W] behind the network that enlarges them.
#pragma once
#include "scaffolding/core/tensor.h"

namespace sf::diffusion {

// Each channel with the mean and the standard deviation of the reference's [B, C, ...] (Huang and Belongie 2017, arXiv
// 1703.06868), which may have another size; factor 0 leaves latents as they are, 1 takes the result, and what is beyond
// goes on in that direction.
Tensor adain_filter_latent(const Tensor& latents, const Tensor& reference_latents, double factor = 1);

// Values become smaller, those beyond 1 by more than those near 0: with compression 1 to two fifths at the least, with
// 0 not at all.
Tensor tone_map_latents(const Tensor& latents, double compression);

}  // namespace sf::diffusion
