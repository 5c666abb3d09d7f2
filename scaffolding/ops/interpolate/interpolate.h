// Resizing of one to three spatial dimensions.
#pragma once
#include "scaffolding/core/tensor.h"
#include "scaffolding/core/value.h"

namespace sf {

// input[N, C, ...] with 1 to 3 spatial dimensions, resized to `size` or by `scale_factor` (one number, or one each).
// mode: "nearest", "nearest-exact", "area" (any rank), "linear" (3-D), "bilinear", "bicubic" (4-D), "trilinear" (5-D).
// Coordinates follow torch.nn.functional.interpolate: a given scale_factor is itself the ratio of coordinates unless
// recompute_scale_factor asks for the ratio of the (rounded) sizes. antialias widens the filters of "bilinear" and
// "bicubic" when shrinking (as Pillow does). Keeps the memory format; weights are applied in float32 or wider.
Tensor interpolate(const Tensor& input, const std::optional<Shape>& size = {},
                   const std::optional<Floats>& scale_factor = {}, const std::string& mode = "nearest",
                   std::optional<bool> align_corners = {}, std::optional<bool> recompute_scale_factor = {},
                   bool antialias = false);

}  // namespace sf
