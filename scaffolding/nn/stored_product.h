// Products with stored weights and what follows them, in one pass over the weight where nothing learns.
#pragma once
#include "scaffolding/nn/module.h"
#include "scaffolding/ops/quantize/product_end.h"

namespace sf::nn {

// activation(layer(input) + residual) of a layer whose weight is stored (stored_weight.h). ValueError for another.
Tensor stored_product(const Module& layer, const Tensor& input, const ProductEnd& end);

}  // namespace sf::nn
