// Plain data between maximum pooling and its kernels; dense tensors in the layout of spatial::Extent.
#pragma once
#include "scaffolding/ops/spatial/kernel.h"

namespace sf {

// Output o of dimension d sees inputs start[d][o] + k * dilation[d] for k < count[d][o]; at least one.
struct MaxPool {
  const void* in;
  void* out;
  int64_t* index;  // of the maximum in the flattened spatial dimensions; null when nobody asks
  DType dtype;
  spatial::Extent from, to;
  const int64_t *start[3], *count[3];
  int64_t dilation[3];
};
extern KernelTable<MaxPool> max_pool_kernel;

// dx[index[o]] += dy[o] for each channel, in the order of o; dx is zero before. dtype: float32 or float64.
// Outputs that see input i of dimension d are among first[d][i] <= o < last[d][i].
struct MaxPoolBackward {
  const void* dy;
  const int64_t* index;
  void* dx;
  DType dtype;
  spatial::Extent dx_extent, dy_extent;
  const int64_t *first[3], *last[3];
};
extern KernelTable<MaxPoolBackward> max_pool_backward_kernel;

}  // namespace sf
