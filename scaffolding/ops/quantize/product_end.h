// What is done with a product with a stored weight in its own pass where nothing learns, else after it.
#pragma once
#include <string>

#include "scaffolding/core/tensor.h"
#include "scaffolding/ops/matmul/kernel.h"

namespace sf {

// activation(product + residual). activation: none, relu, gelu, gelu_tanh, silu or quick_gelu.
struct ProductEnd {
  Tensor residual = {};
  std::string activation = "none";
};
Activation pointwise_activation(const char* op, const std::string& name);  // ValueError for another
Tensor activated(const Tensor& x, Activation act);

}  // namespace sf
