// Two linear layers with an activation between them as one op (ops/fused/mlp),
// where that is faster and nobody can tell.
#pragma once
#include "scaffolding/nn/dropout.h"
#include "scaffolding/nn/linear.h"

namespace sf::nn {

// second(between(act(first(x)))) on a GPU, unless somebody wants to see one of the parts or `between`, which may be
// null, drops something: then empty, and the caller calls them in turn. activation: as linear_act names it.
Tensor joined(const Tensor& x, const Linear& first, const std::string& activation, const Dropout* between,
              const Linear& second);

// The same of neighbours in a Sequential: Linear, ReLU or GELU by tanh, Linear; empty for others.
Tensor joined(const Tensor& x, const Module& first, const Module& activation, const Module& second);

}  // namespace sf::nn
