#include "scaffolding/models/autoencoders/tiles.h"

#include <algorithm>

namespace sf::models {

Tensor blend(const Tensor& a, Tensor b, int64_t dim, int64_t extent) {
  extent = std::min({a.size(dim), b.size(dim), extent});
  if (extent <= 0) return b;
  Shape across = Shape::filled(b.ndim(), 1);
  across[dim] = extent;
  Tensor share = (arange(0, extent, 1, kFloat64, b.device()) / double(extent)).reshape(across);
  Tensor head = b.narrow(dim, 0, extent);
  head.copy_(a.narrow(dim, a.size(dim) - extent, extent) * (1 - share).to(b.dtype()) + head * share.to(b.dtype()));
  return b;
}

void check_tiling(const char* who, const Tiling& t) {
  SF_CHECK(t.step > 0 && t.kept > 0, who, ": tiles must be larger than their overlap, got tiles of ", t.size,
           " with steps of ", t.step, ", of which ", t.kept, " are kept");
}

}  // namespace sf::models
