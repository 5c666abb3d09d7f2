// Images, volumes and sequences as kernels see them: outer x size[0] x size[1] x size[2] x inner, dense. Of [N, C, ...]
// tensors, row-major memory has the channels in outer and inner = 1; channels-last memory has inner = C.
// Absent spatial dimensions have size 1. Shared by pad, interpolate and pool.
#pragma once
#include <memory>

#include "scaffolding/core/kernel.h"
#include "scaffolding/core/tensor.h"

namespace sf::spatial {

struct Extent {
  int64_t outer = 1, size[3] = {1, 1, 1}, inner = 1;
};

struct Layout {
  Tensor x;               // dense: the tensor itself, or a row-major copy
  int64_t dims;           // how many of the last dimensions are spatial (in channels-last memory, too, by shape)
  bool channels_last;
  Extent extent;
};
// Off the tape. channels_last only where x has a batch and a channel dimension and lies so in memory.
Layout layout_of(const Tensor& x, int64_t dims);
// A tensor like l.x with other spatial sizes and the same memory format.
Tensor empty_result(const Layout& l, const Shape& spatial, std::optional<DType> dtype = {});
// l with other spatial sizes.
Extent with_sizes(const Layout& l, const Shape& spatial);

// y[..., o0, o1, o2, ...] = x[..., map0[o0], map1[o1], map2[o2], ...]: padding and nearest neighbours. Records its gradient.
using Map = std::vector<int64_t>;
Tensor remap(const char* op, const Tensor& x, const std::vector<Map>& maps);   // for the last maps.size() dimensions

}  // namespace sf::spatial

namespace sf {

// Bytes are only moved. map[d][o] < in.size[d] for each o < out.size[d].
struct Remap {
  const void* in;
  void* out;
  DType dtype;
  spatial::Extent from, to;
  const int64_t* map[3];
};
extern KernelTable<Remap> remap_kernel;

// dx[i] = sum of dy over the outputs that show i: those of dimension d are list[d][start[d][i]] .. list[d][start[d][i + 1] - 1].
struct RemapBackward {
  const void* dy;
  void* dx;
  DType dtype;
  spatial::Extent dx_extent, dy_extent;
  const int64_t *start[3], *list[3];
};
extern KernelTable<RemapBackward> remap_backward_kernel;

}  // namespace sf
