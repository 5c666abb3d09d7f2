#include "scaffolding/models/parts/trained_lora.h"

#include "scaffolding/autograd/autocast.h"
#include "scaffolding/ops/dropout/dropout.h"
#include "scaffolding/ops/ops.h"

namespace sf::models {

TrainedLora::TrainedLora(const nn::Module& layer, std::vector<LoraTerm> terms)
    : layer_(layer), conv_(dynamic_cast<const nn::Conv2d*>(&layer)), terms_(std::move(terms)) {}

Tensor TrainedLora::apply(const Tensor& input, const std::function<Tensor()>& bare) const {
  const Tensor output = bare();
  Tensor sum = output;
  for (const LoraTerm& term : terms_) sum = sum + side(term, input);
  return sum.to(output.dtype());
}

Tensor TrainedLora::side(const LoraTerm& term, const Tensor& input) const {
  Tensor x = autocast::active() ? input : input.to(term.down.dtype());
  if (term.dropout > 0 && layer_.training) x = dropout(x, term.dropout);
  Tensor h = conv_ ? conv_->convolve(x, term.down) : linear(x, term.down);
  if (term.scale != 1) h = h * term.scale;
  return conv_ ? conv2d(h, term.up) : linear(h, term.up);
}

void TrainedLora::each_tensor(const std::function<void(const Tensor&)>& see) const {
  for (const LoraTerm& term : terms_) see(term.down), see(term.up);
}

}  // namespace sf::models
