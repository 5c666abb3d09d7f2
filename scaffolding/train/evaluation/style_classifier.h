// StyleClassifier: which of a few styles a picture is drawn in, by ridge regression from texture_features to one number
// for each style. Fitted on pictures as they are and softened, since what a network paints is never as sharp. Immutable
// after construction: any thread may use it.
#pragma once
#include <string>
#include <vector>

#include "scaffolding/train/evaluation/symmetric_matrix.h"

namespace sf::train {

class StyleClassifier {
 public:
  // features[samples, kTextureFeatures]; label: the place in `styles` of each sample.
  StyleClassifier(std::vector<std::string> styles, const Matrix& features, const std::vector<int64_t>& label);
  int64_t classify(const std::vector<float>& features) const;  // a place in styles()
  const std::vector<std::string>& styles() const { return styles_; }

 private:
  std::vector<std::string> styles_;
  std::vector<double> mean_, scale_;
  Matrix weight_;  // [features + 1, styles]
};

}  // namespace sf::train
