// Adapter: what changes a layer's output beside its weight, such as LoRA. It belongs to nobody's state: no key, no
// parameter of the layer's module; whoever attached it (Module::adapt) takes it off again.
#pragma once
#include <functional>

#include "scaffolding/core/tensor.h"

namespace sf::nn {

struct Adapter {
  virtual ~Adapter() = default;
  // The layer's output of `input`. bare() is what the layer computes by itself, which an adapter that knows the layer
  // need not call. Called within the layer's hooks, from any thread.
  virtual Tensor apply(const Tensor& input, const std::function<Tensor()>& bare) const = 0;
  // Every tensor that its result depends on: what is kept of a layer's results is of these, as they are now.
  virtual void each_tensor(const std::function<void(const Tensor&)>& see) const = 0;
};

}  // namespace sf::nn
