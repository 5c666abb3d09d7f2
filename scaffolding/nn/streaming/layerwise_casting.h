// LayerwiseCasting: weights that are stored in a narrower dtype and converted around each call of the part that they
// belong to, as diffusers' enable_layerwise_casting. Where the model is streamed by blocks too, the copies are narrow.
#pragma once
#include <memory>

#include "scaffolding/nn/module.h"

namespace sf::nn {

class LayerwiseCasting {
 public:
  // skip: regular expressions, searched for in names of modules; tensors of those, and of no part, stay as they are.
  // The model must not go before this.
  LayerwiseCasting(Module& model, DType storage, DType compute, const std::vector<std::string>& skip);
  ~LayerwiseCasting();  // the weights stay as they are stored
  LayerwiseCasting(const LayerwiseCasting&) = delete;
  LayerwiseCasting& operator=(const LayerwiseCasting&) = delete;

  int64_t tensors() const;  // that are stored so

 private:
  struct Part;
  std::vector<std::unique_ptr<Part>> parts_;
};

}  // namespace sf::nn
