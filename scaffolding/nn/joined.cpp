#include "scaffolding/nn/joined.h"

#include <typeinfo>

#include "scaffolding/nn/activation.h"
#include "scaffolding/nn/looked_at.h"
#include "scaffolding/ops/fused/mlp/mlp.h"

namespace sf::nn {

Tensor joined(const Tensor& x, const Linear& first, const std::string& activation, const Dropout* between,
              const Linear& second) {
  if (!x || !x.device().is_cuda() || is_looked_at(first) || is_looked_at(second)) return {};
  if (between && (is_looked_at(*between) || (between->training && between->p.to_double() > 0))) return {};
  return mlp(x, first.weight, first.bias, second.weight, second.bias, activation);
}

Tensor joined(const Tensor& x, const Module& first, const Module& activation, const Module& second) {
  if (!x || !x.device().is_cuda() || typeid(first) != typeid(Linear) || typeid(second) != typeid(Linear) ||
      is_looked_at(activation))
    return {};
  const auto* gelu = typeid(activation) == typeid(GELU) ? static_cast<const GELU*>(&activation) : nullptr;
  const bool by_tanh = gelu && gelu->approximate == "tanh";
  if (!by_tanh && typeid(activation) != typeid(ReLU)) return {};
  return joined(x, static_cast<const Linear&>(first), by_tanh ? "gelu_tanh" : "relu", nullptr,
                static_cast<const Linear&>(second));
}

}  // namespace sf::nn
