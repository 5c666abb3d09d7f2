#include "scaffolding/nn/dropout.h"

#include "scaffolding/autograd/tape.h"
#include "scaffolding/nn/format.h"
#include "scaffolding/ops/dropout/dropout.h"

namespace sf::nn {

DropoutNd::DropoutNd(Scalar probability, bool in_place) : p(probability), inplace(in_place) {
  SF_CHECK(p.to_double() >= 0 && p.to_double() <= 1, "Dropout: dropout probability has to be between 0 and 1, but got ",
           p.to_double());
}
std::string DropoutNd::extra_repr() const { return "p=" + text(p) + ", inplace=" + text(inplace); }

static Tensor placed(const Tensor& input, Tensor y, bool inplace) {
  if (!inplace || y.is_same(input)) return y;
  Tensor x = input;
  return autograd::assign_inplace("dropout_", x, y);
}
Tensor Dropout::forward(const Tensor& x) const { return placed(x, dropout(x, p.to_double(), training), inplace); }
Tensor Dropout1d::forward(const Tensor& x) const { return placed(x, dropout1d(x, p.to_double(), training), inplace); }
Tensor Dropout2d::forward(const Tensor& x) const { return placed(x, dropout2d(x, p.to_double(), training), inplace); }
Tensor Dropout3d::forward(const Tensor& x) const { return placed(x, dropout3d(x, p.to_double(), training), inplace); }
Tensor AlphaDropout::forward(const Tensor& x) const {
  return placed(x, alpha_dropout(x, p.to_double(), training), inplace);
}
Tensor FeatureAlphaDropout::forward(const Tensor& x) const {
  return placed(x, feature_alpha_dropout(x, p.to_double(), training), inplace);
}

template <class T> static std::unique_ptr<T> make(Scalar p, bool inplace) { return std::make_unique<T>(p, inplace); }
template <class T> static LayerEntry& fields(LayerEntry& e) {
  return e.forward<&T::forward>("input").template field<&DropoutNd::p>("p").template field<&DropoutNd::inplace>(
      "inplace");
}
SF_LAYER(Dropout, "p=0.5, inplace=False", &make<Dropout>)
    .doc("Elements zeroed with probability p, in training.")
    .with(fields<Dropout>);
SF_LAYER(Dropout1d, "p=0.5, inplace=False", &make<Dropout1d>)
    .doc("Channels of input[N, C, L] zeroed with probability p, in training.")
    .with(fields<Dropout1d>);
SF_LAYER(Dropout2d, "p=0.5, inplace=False", &make<Dropout2d>)
    .doc("Channels of input[N, C, H, W] zeroed with probability p, in training.")
    .with(fields<Dropout2d>);
SF_LAYER(Dropout3d, "p=0.5, inplace=False", &make<Dropout3d>)
    .doc("Channels of input[N, C, D, H, W] zeroed with probability p, in training.")
    .with(fields<Dropout3d>);
SF_LAYER(AlphaDropout, "p=0.5, inplace=False", &make<AlphaDropout>)
    .doc("Dropout that keeps mean and variance, for SELU networks.")
    .with(fields<AlphaDropout>);
SF_LAYER(FeatureAlphaDropout, "p=0.5, inplace=False", &make<FeatureAlphaDropout>)
    .doc("AlphaDropout of whole channels of input[N, C, ...].")
    .with(fields<FeatureAlphaDropout>);

}  // namespace sf::nn
