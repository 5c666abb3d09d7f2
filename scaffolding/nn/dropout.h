// Dropout layers: in training, elements or whole channels are zeroed with probability p and the rest scaled by 1 / (1 -
// p).
#pragma once
#include "scaffolding/nn/layer.h"

namespace sf::nn {

struct DropoutNd : Module {
  Scalar p;  // shown as it was given: 0 or 0.0
  bool inplace;
  explicit DropoutNd(Scalar p = 0.5, bool inplace = false);
  std::string extra_repr() const override;
};
#define SF_DROPOUT(Type)                       \
  struct Type : DropoutNd {                    \
    using DropoutNd::DropoutNd;                \
    SF_MODULE(Type)                            \
    Tensor forward(const Tensor& input) const; \
  };
SF_DROPOUT(Dropout)
SF_DROPOUT(Dropout1d)
SF_DROPOUT(Dropout2d)
SF_DROPOUT(Dropout3d)
SF_DROPOUT(AlphaDropout)
SF_DROPOUT(FeatureAlphaDropout)
#undef SF_DROPOUT

}  // namespace sf::nn
