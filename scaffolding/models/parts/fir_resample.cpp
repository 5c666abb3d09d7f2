#include "scaffolding/models/parts/fir_resample.h"

#include "scaffolding/ops/ops.h"

namespace sf::models {

namespace {

// Along one dimension that has a zero at both ends: each second sum of four neighbours.
Tensor halved(const Tensor& padded, int64_t dim) {
  const int64_t n = (padded.size(dim) - 2) / 2;
  auto every_second = [&](int64_t from) { return padded.slice(dim, from, from + 2 * n - 1, 2); };
  return (every_second(0) + every_second(3)) * 0.125 + (every_second(1) + every_second(2)) * 0.375;
}

// Three quarters of a value and a quarter of its neighbour: before it, then behind it.
Tensor doubled(const Tensor& padded, int64_t dim) {
  const int64_t n = padded.size(dim) - 2;
  const Tensor near = padded.narrow(dim, 1, n) * 0.75;
  Shape size = near.shape();
  size[size_t(dim)] = 2 * n;
  const Tensor pairs = stack({near + padded.narrow(dim, 0, n) * 0.25, near + padded.narrow(dim, 2, n) * 0.25}, dim + 1);
  return pairs.reshape(size);
}

}  // namespace

Tensor fir_downsample_2d(const Tensor& x) { return halved(halved(pad(x, {1, 1, 1, 1}), 2), 3); }

Tensor fir_upsample_2d(const Tensor& x) { return doubled(doubled(pad(x, {1, 1, 1, 1}), 2), 3); }

}  // namespace sf::models
