// Pictures halved and doubled by the filter (1, 3, 3, 1) over rows and columns, as the networks of score-based models
// do (Song et al. 2021, arXiv 2011.13456), with zeros beyond the border. Written in ops.
#pragma once
#include "scaffolding/core/tensor.h"

namespace sf::models {

Tensor fir_downsample_2d(const Tensor& x);  // [B, C, H, W] -> [B, C, H / 2, W / 2], rounded down
Tensor fir_upsample_2d(const Tensor& x);    // [B, C, H, W] -> [B, C, 2 H, 2 W]

}  // namespace sf::models
