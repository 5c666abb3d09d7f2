#include "scaffolding/train/reconstruction_loss.h"

#include "scaffolding/ops/ops.h"

namespace sf::train {

Tensor reconstruction_loss(const Tensor& pictures, const Tensor& wanted, double edge_weight) {
  Tensor difference = pictures - wanted;
  Tensor loss = mean(abs(difference));
  if (edge_weight == 0) return loss;
  auto edges = [&](int64_t dim) {
    int64_t n = difference.size(dim);
    return mean(abs(difference.narrow(dim, 1, n - 1) - difference.narrow(dim, 0, n - 1)));
  };
  return loss + edge_weight * (edges(difference.ndim() - 2) + edges(difference.ndim() - 1));
}

Tensor square_reconstruction_loss(const Tensor& pictures, const Tensor& wanted) {
  const Tensor difference = pictures - wanted;
  return 4 * mean(square(difference)) + 0.1 * mean(abs(difference));
}

}  // namespace sf::train
