// WidenedWeights: a model computes in a wider dtype for a while, and its weights stay as they are stored: pages of a
// file, homes of what is streamed. Each part's are converted around its calls, so that no second copy of the model is
// made. The results are those of a model converted whole, to the bit.
#pragma once
#include <optional>

#include "scaffolding/nn/streaming/cast_parts.h"

namespace sf::nn {

class WidenedWeights {
 public:
  // All floating weights that are narrower than `compute`. The model must not go before this, nor be called meanwhile.
  // NotSupported where weights are read past the calls of their part.
  WidenedWeights(Module& model, DType compute);
  ~WidenedWeights();
  WidenedWeights(const WidenedWeights&) = delete;
  WidenedWeights& operator=(const WidenedWeights&) = delete;

  // Around calls that C++ does not see: of modules whose forward is Python's. The same as long as this lives.
  const std::vector<ResidencePlace>& places() const { return parts_.places(); }

 private:
  Module& model_;
  CastParts parts_;
  std::optional<DType> before_;  // as which others cast it
};

}  // namespace sf::nn
