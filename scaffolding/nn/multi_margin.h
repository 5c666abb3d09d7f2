// Margins between classes, as layers.
#pragma once
#include "scaffolding/nn/loss.h"

namespace sf::nn {

struct MultiMarginLoss : Loss {
  int64_t p;
  Number margin;
  Buffer weight;  // [C], or absent
  SF_MODULE(MultiMarginLoss, weight)
  explicit MultiMarginLoss(int64_t p = 1, Number margin = 1.0, Tensor weight = {}, const std::string& how = "mean");
  Tensor forward(const Tensor& input, const Tensor& target) const;
};
struct MultiLabelMarginLoss : Loss {
  SF_MODULE(MultiLabelMarginLoss)
  explicit MultiLabelMarginLoss(const std::string& how = "mean") : Loss("MultiLabelMarginLoss", how) {}
  Tensor forward(const Tensor& input, const Tensor& target) const;
};

}  // namespace sf::nn
