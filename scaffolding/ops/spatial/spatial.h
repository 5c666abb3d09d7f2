// Images, volumes and sequences as kernels see them: outer x size[0] x size[1] x size[2] x inner, dense. Of [N, C, ...]
// tensors, row-major memory has the channels in outer and inner = 1; channels-last memory has inner = C.
// Absent spatial dimensions have size 1. Shared by pad, interpolate and pool.
#pragma once
#include <memory>

#include "scaffolding/core/tensor.h"
#include "scaffolding/ops/spatial/kernel.h"

namespace sf::spatial {

struct Layout {
  Tensor x;      // dense: the tensor itself, or a row-major copy
  int64_t dims;  // how many of the last dimensions are spatial (in channels-last memory, too, by shape)
  bool channels_last;
  Extent extent;
};
// Off the tape. channels_last only where x has a batch and a channel dimension and lies so in memory.
Layout layout_of(const Tensor& x, int64_t dims);
// A tensor like l.x with other spatial sizes and the same memory format.
Tensor empty_result(const Layout& l, const Shape& spatial, std::optional<DType> dtype = {});
// l with other spatial sizes.
Extent with_sizes(const Layout& l, const Shape& spatial);

// y[..., o0, o1, o2, ...] = x[..., map0[o0], map1[o1], map2[o2], ...]: padding and nearest neighbours.
// Records its gradient.
using Map = std::vector<int64_t>;
Tensor remap(const char* op, const Tensor& x, const std::vector<Map>& maps);  // for the last maps.size() dimensions

}  // namespace sf::spatial
