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

// Linear under the name that torch gives MultiheadAttention's projection.
struct NonDynamicallyQuantizableLinear : Linear {
  using Linear::Linear;
  SF_MODULE(NonDynamicallyQuantizableLinear, weight, bias)
};

// y[..., o] = x1[..., i] weight[o, i, j] x2[..., j] + bias[o].
struct Bilinear : Module {
  int64_t in1_features, in2_features, out_features;
  Tensor weight;  // [out_features, in1_features, in2_features]
  Tensor bias;    // [out_features], or absent
  SF_MODULE(Bilinear, weight, bias)

  Bilinear(int64_t in1_features, int64_t in2_features, int64_t out_features, bool bias = true,
           const TensorOptions& options = {});
  Tensor forward(const Tensor& input1, const Tensor& input2) const;
  void reset_parameters();
  std::string extra_repr() const override;
};

// The input itself.
struct Identity : Module {
  SF_MODULE(Identity)
  Tensor forward(const Tensor& input) const { return input; }
};

}  // namespace sf::nn
