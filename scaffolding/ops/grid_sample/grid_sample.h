// Pictures and volumes read at given places.
#pragma once
#include "scaffolding/core/tensor.h"

namespace sf {

// input[N, C, H, W] at grid[N, Ho, Wo, 2] -> [N, C, Ho, Wo], or input[N, C, D, H, W] at grid[N, Do, Ho, Wo, 3]. A place
// is (x, y) or (x, y, z): -1 and 1 are the centres of the outermost pixels with align_corners, else their outer edges.
// mode: "bilinear" (trilinear for volumes), "nearest" or "bicubic" (pictures only). padding_mode, for places outside:
// "zeros", "border" (the nearest pixel) or "reflection" (at the borders). Without align_corners it is false.
Tensor grid_sample(const Tensor& input, const Tensor& grid, const std::string& mode = "bilinear",
                   const std::string& padding_mode = "zeros", std::optional<bool> align_corners = {});
// The grid of an affine map: theta[N, 2, 3] and size [N, C, H, W] -> [N, H, W, 2], or theta[N, 3, 4] and size
// [N, C, D, H, W] -> [N, D, H, W, 3].
Tensor affine_grid(const Tensor& theta, const Shape& size, std::optional<bool> align_corners = {});

}  // namespace sf
