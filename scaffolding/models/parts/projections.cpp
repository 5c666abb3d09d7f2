#include "scaffolding/models/parts/projections.h"

namespace sf::models {

const nn::LinearFP8* float8_layer(const nn::Linear& linear) {
  const nn::Module* there = linear.present();
  auto* layer = there == &linear ? nullptr : dynamic_cast<const nn::LinearFP8*>(there);
  if (!layer || layer->has_hooks() || (layer->extension() && layer->extension()->calls())) return nullptr;
  return layer->dynamic && layer->weight.dtype() == kFloat8E4M3 && layer->scale.ndim() == 2 ? layer : nullptr;
}

Tensor project_float8(const nn::LinearFP8& layer, const Float8Rows& x, const Tensor& residual, DType dtype) {
  return linear_of_fp8(x, layer.weight, layer.scale, layer.bias, residual, dtype);
}

}  // namespace sf::models
