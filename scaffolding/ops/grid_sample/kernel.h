// The contract of grid_sample with backends.
#pragma once
#include "scaffolding/core/kernel.h"

namespace sf {

struct GridSample {
  enum Mode : uint8_t { Linear, Nearest, Cubic };
  enum Padding : uint8_t { Zeros, Border, Reflection };
  const void* input;  // [n, channels, pixels], or [n, pixels, channels] with channels_last; pixels: z, y, x
  const void* grid;   // [n, points, dims]: x, y, z
  void* out;          // [n, channels, points], or [n, points, channels] with channels_last
  DType dtype;        // of all: float32 or float64
  Device device;
  int64_t n, channels, points;
  int64_t size[3];  // of x, y and z; their product is below 2^31
  int dims;         // 2 or 3
  Mode mode;        // Cubic: 2 dimensions only
  Padding padding;
  bool align_corners, channels_last;
};
extern KernelTable<GridSample> grid_sample_kernel;

// Gradients of sum(out * dy): all but call.out as in the call, never channels_last.
struct GridSampleBackward {
  GridSample call;
  const void* dy;    // [n, channels, points]
  void *dx, *dgrid;  // as input and grid; null where not wanted. dx is 0 on entry.
};
extern KernelTable<GridSampleBackward> grid_sample_backward_kernel;

}  // namespace sf
