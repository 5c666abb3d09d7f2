// TrainedLora: the side paths of a layer of which one is trained, each for itself and on the tape: output + scale *
// up(down(dropout(input))). Factors may be in another dtype than the layer; sums are rounded to the layer's once.
//
// Where nothing is trained a LoraPath (lora.h) stands for all of them, which fused kernels read; they go past none of
// these.
#pragma once
#include "scaffolding/models/parts/lora.h"

namespace sf::models {

class TrainedLora final : public nn::Adapter {
 public:
  // Terms without mid and row: what is trained, and others as LoraPath::ready() makes them.
  TrainedLora(const nn::Module& layer, std::vector<LoraTerm> terms);
  Tensor apply(const Tensor& input, const std::function<Tensor()>& bare) const override;
  void each_tensor(const std::function<void(const Tensor&)>& see) const override;

 private:
  Tensor side(const LoraTerm& term, const Tensor& input) const;

  const nn::Module& layer_;
  const nn::Conv2d* conv_;  // whose strides and padding the first convolution has; null of a linear layer
  std::vector<LoraTerm> terms_;
};

}  // namespace sf::models
