// LayerwiseCasting: weights that are stored in a narrower dtype and converted around each call of the part that they
// belong to, as diffusers' enable_layerwise_casting. Where the model is streamed by blocks too, what is copied is narrow.
#pragma once
#include <memory>

#include "scaffolding/nn/module.h"

namespace sf::nn {

class LayerwiseCasting {
 public:
  // skip: parts of names (regular expressions, searched for); tensors of such modules, and of no part, stay as they are.
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
