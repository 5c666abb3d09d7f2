// Padding and cropping.
#pragma once
#include "scaffolding/core/tensor.h"

namespace sf {

// input with `pad` = {left, right, top, bottom, ...} entries added, from the last dimension forwards.
// Negative counts crop.
// mode "constant" (any number of dimensions, filled with value, 0 without it); "reflect", "replicate" and "circular"
// for the last 1 to 3 dimensions. Keeps the memory format.
Tensor pad(const Tensor& input, const Shape& pad, const std::string& mode = "constant",
           std::optional<Scalar> value = {});

}  // namespace sf
