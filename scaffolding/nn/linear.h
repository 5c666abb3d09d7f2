// Layers around matrix products.
#pragma once
#include "scaffolding/nn/layer.h"

namespace sf::nn {

// y[..., out_features] = x[..., in_features] @ weight^T + bias. Both start uniform in +-1 / sqrt(in_features).
struct Linear : Module {
  int64_t in_features, out_features;
  Tensor weight;  // [out_features, in_features]
  Tensor bias;    // [out_features], or absent
  SF_MODULE(Linear, weight, bias)

  Linear(int64_t in_features, int64_t out_features, bool bias = true, const TensorOptions& options = {});
  Tensor forward(const Tensor& input) const;
  void reset_parameters();
  std::string extra_repr() const override;
};

}  // namespace sf::nn
