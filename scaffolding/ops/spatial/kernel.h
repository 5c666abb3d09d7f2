// Plain data between ops over images, volumes and sequences and their kernels.
// Tensors are dense in the layout of Extent.
#pragma once
#include "scaffolding/core/kernel.h"

namespace sf {
namespace spatial {

struct Extent {
  int64_t outer = 1, size[3] = {1, 1, 1}, inner = 1;
};

}  // namespace spatial

// Bytes are only moved. map[d][o] < in.size[d] for each o < out.size[d].
struct Remap {
  const void* in;
  void* out;
  DType dtype;
  spatial::Extent from, to;
  const int64_t* map[3];
};
extern KernelTable<Remap> remap_kernel;

// dx[i] = sum of dy over the outputs that show i: those of dimension d are list[d][start[d][i]] ..
// list[d][start[d][i + 1] - 1].
struct RemapBackward {
  const void* dy;
  void* dx;
  DType dtype;
  spatial::Extent dx_extent, dy_extent;
  const int64_t *start[3], *list[3];
};
extern KernelTable<RemapBackward> remap_backward_kernel;

struct TapsView {
  const int32_t *start, *count;
  const double* weight;
  const float *weight32, *by_tap;
  int64_t width, full_begin, full_end;
  bool identity;
};
// Sums in float32 (float64 for float64). scratch: for each thread from.size[2] * block + to.size[2] numbers of the
// sum's type, where block channels (<= inner) are done together.
struct Resample {
  const void* in;
  void* out;
  DType dtype;
  spatial::Extent from, to;
  TapsView taps[3];
  void* scratch;
  int64_t scratch_per_thread, block;
};
extern KernelTable<Resample> resample_kernel;

}  // namespace sf
