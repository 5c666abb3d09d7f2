// LayerwiseCasting: weights that are stored in a narrower dtype and converted around each call of the part that they
// belong to, as diffusers' enable_layerwise_casting. Where the model is streamed by blocks too, the copies are narrow.
#pragma once
#include <memory>

#include "scaffolding/nn/streaming/cast_parts.h"

namespace sf::nn {

class LayerwiseCasting {
 public:
  // Of linear layers, convolutions and embeddings, as in diffusers; those that are read past their calls (ReadsBelow),
  // or shared, are rounded to `storage` and stay wide. skip: regular expressions, searched for in names of modules:
  // what is in those stays as it is. The model must not go before this. Where it fails, nothing has changed.
  LayerwiseCasting(Module& model, DType storage, DType compute, const std::vector<std::string>& skip);
  ~LayerwiseCasting();  // the weights stay as they are stored
  LayerwiseCasting(const LayerwiseCasting&) = delete;
  LayerwiseCasting& operator=(const LayerwiseCasting&) = delete;

  int64_t tensors() const { return parts_->tensors(); }  // that are stored so
  // Around calls that C++ does not see: of modules whose forward is Python's. The same as long as this lives.
  const std::vector<ResidencePlace>& places() const { return parts_->places(); }

 private:
  Module& model_;
  std::unique_ptr<CastParts> parts_;
};

}  // namespace sf::nn
