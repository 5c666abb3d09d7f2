#include "scaffolding/nn/streaming/widened_weights.h"

#include "scaffolding/core/error.h"

namespace sf::nn {

// Who brings or widens weights already does so before, and is done after this.
WidenedWeights::WidenedWeights(Module& model, DType compute)
    : model_(model), parts_(model, compute, ResidenceOrder::Last), before_(cast_dtype(model)) {
  for (auto& layer : named_modules(model)) {
    auto add = [&](const Tensor& t) {
      if (!is_floating(t.dtype()) || size_of(t.dtype()) >= size_of(compute)) return;
      SF_CHECK_AS(NotSupported, !parts_.is_read_elsewhere(t), model.type(), ": cannot compute in ", compute,
                  " for a while: weights of ", layer.name, " are read past its calls; convert the model");
      parts_.add(layer, t);
    };
    for (auto& p : named_parameters(*layer.module, "", false)) add(p.tensor);
    for (auto& b : named_buffers(*layer.module, "", false))
      if (!is_float8(b.tensor.dtype())) add(b.tensor);  // codes of a quantised layer
  }
  set_cast(model, compute);
}

WidenedWeights::~WidenedWeights() { set_cast(model_, before_); }

}  // namespace sf::nn
