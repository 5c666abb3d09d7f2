// Drawings in other colours. What has the colour that most of a drawing has is turned to another; its shading stays,
// and so do small parts of other colours, such as eyes. Functions only; any thread.
#pragma once
#include <optional>
#include <string>

#include "scaffolding/core/tensor.h"

namespace sf::data {

// A drawing uint8 [4, H, W] with its main colour turned to the one that is named (colour_names()). Absent where people
// would not call the result by that name: the colours of the result are counted.
std::optional<Tensor> recoloured(const Tensor& drawing, const std::string& colour);

// All hues turned by so many degrees.
Tensor hue_turned(const Tensor& drawing, double degrees);

}  // namespace sf::data
