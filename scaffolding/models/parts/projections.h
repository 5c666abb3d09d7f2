// Linear layers that LinearFP8 stands in for (nn.quantize_ with dynamic), where what comes before them can quantise its result itself.
#pragma once
#include "scaffolding/nn/quantized.h"
#include "scaffolding/ops/quantize/fp8_producers.h"

namespace sf::models {

// The LinearFP8 in this layer's place, with scales of rows on both sides, that nobody looks at; null where there is none.
const nn::LinearFP8* float8_layer(const nn::Linear& linear);
// layer(x) + residual, which may be absent, in dtype.
Tensor project_float8(const nn::LinearFP8& layer, const Float8Rows& x, const Tensor& residual, DType dtype);

}  // namespace sf::models
