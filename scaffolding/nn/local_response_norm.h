// Normalisation over neighbouring channels, as a layer.
#pragma once
#include "scaffolding/nn/layer.h"

namespace sf::nn {

struct LocalResponseNorm : Module {
  int64_t size;
  Number alpha, beta, k;
  SF_MODULE(LocalResponseNorm)
  explicit LocalResponseNorm(int64_t size, Number alpha = 1e-4, Number beta = 0.75, Number k = 1.0);
  Tensor forward(const Tensor& input) const;
  std::string extra_repr() const override;
};

}  // namespace sf::nn
