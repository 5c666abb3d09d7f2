// Masks as AUTOMATIC1111's clients use them: blurred edges, and what stands below a mask before it is drawn anew.
// Functions only: any thread may call any of them.
#pragma once
#include "scaffolding/core/tensor.h"

namespace sf::server {

// uint8 [1, H, W] with a Gaussian blur of this deviation in pixels, by three box blurs; 0: as it is.
Tensor blurred_mask(const Tensor& mask, int64_t deviation);
// picture uint8 [3, H, W] with what is around the mask spread over what is white in it, uint8 [1, H, W]: the near
// surroundings at its edges, the far ones in its middle.
Tensor filled_picture(const Tensor& picture, const Tensor& mask);

}  // namespace sf::server
