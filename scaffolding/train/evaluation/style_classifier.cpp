#include "scaffolding/train/evaluation/style_classifier.h"

#include <cmath>

#include "scaffolding/core/error.h"

namespace sf::train {

constexpr double kRidge = 1e-3;  // of a feature's variance

StyleClassifier::StyleClassifier(std::vector<std::string> styles, const Matrix& features,
                                 const std::vector<int64_t>& label)
    : styles_(std::move(styles)), weight_(features.columns + 1, int64_t(styles_.size())) {
  const int64_t n = features.rows, width = features.columns, kinds = int64_t(styles_.size());
  SF_CHECK(n > 0 && kinds > 0 && label.size() == size_t(n),
           "StyleClassifier: needs samples, styles and a label for each, got ", n, ", ", kinds, " and ", label.size());
  mean_.assign(size_t(width), 0.0);
  scale_.assign(size_t(width), 0.0);
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < width; ++j) mean_[size_t(j)] += features(i, j) / double(n);
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < width; ++j) scale_[size_t(j)] += std::pow(features(i, j) - mean_[size_t(j)], 2) / double(n);
  for (double& s : scale_) s = 1 / (std::sqrt(s) + 1e-4);
  Matrix z(n, width + 1), target(n, kinds);
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < width; ++j) z(i, j) = (features(i, j) - mean_[size_t(j)]) * scale_[size_t(j)];
    z(i, width) = 1;
    for (int64_t k = 0; k < kinds; ++k) target(i, k) = label[size_t(i)] == k ? 1 : -1;
  }
  // (Z^T Z + lambda n)^-1 Z^T T through the eigenvectors of Z^T Z.
  Matrix zt = transposed(z);
  EigenDecomposition eigen = symmetric_eigen(product(zt, z));
  Matrix inner = product(transposed(eigen.vectors), product(zt, target));
  for (int64_t i = 0; i <= width; ++i)
    for (int64_t k = 0; k < kinds; ++k) inner(i, k) /= eigen.values[size_t(i)] + kRidge * double(n);
  weight_ = product(eigen.vectors, inner);
}

int64_t StyleClassifier::classify(const std::vector<float>& features) const {
  SF_CHECK(features.size() == mean_.size(), "StyleClassifier: needs ", mean_.size(), " features, got ",
           features.size());
  int64_t best = 0;
  double most = 0;
  for (int64_t k = 0; k < weight_.columns; ++k) {
    double score = weight_(int64_t(mean_.size()), k);
    for (size_t j = 0; j < mean_.size(); ++j) score += (features[j] - mean_[j]) * scale_[j] * weight_(int64_t(j), k);
    if (k == 0 || score > most) most = score, best = k;
  }
  return best;
}

}  // namespace sf::train
