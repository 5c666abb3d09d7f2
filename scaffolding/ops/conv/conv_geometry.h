// Sizes of a convolution and what they pair.
// Included only by *.cpu.cpp and *.amx.cpp files; everything lives in namespace sf::SF_ISA.
#pragma once
#include "scaffolding/backend/cpu/simd.h"
#include "scaffolding/ops/conv/kernel.h"

namespace sf {
namespace SF_ISA {

// Three spatial dimensions always; absent ones are 1.
struct ConvGeometry {
  int64_t batch, in[3], out[3], kernel[3], stride[3], padding[3], dilation[3], taps;

  static ConvGeometry of(const TensorView& x, const TensorView& w, const TensorView& y, const ConvShape& s) {
    ConvGeometry g;
    const int n = x.ndim - 2, lead = 3 - n;
    g.batch = x.sizes[0];
    g.taps = 1;
    for (int i = 0; i < 3; ++i) {
      const int d = i - lead;
      g.in[i] = d < 0 ? 1 : x.sizes[d + 2];
      g.out[i] = d < 0 ? 1 : y.sizes[d + 2];
      g.kernel[i] = d < 0 ? 1 : w.sizes[d + 2];
      g.stride[i] = d < 0 ? 1 : s.stride[d];
      g.padding[i] = d < 0 ? 0 : s.padding[d];
      g.dilation[i] = d < 0 ? 1 : s.dilation[d];
      g.taps *= g.kernel[i];
    }
    return g;
  }
  SF_INLINE int64_t in_pixels() const { return batch * in[0] * in[1] * in[2]; }
  SF_INLINE int64_t out_pixels() const { return batch * out[0] * out[1] * out[2]; }

  // Frames are counted over all pictures. The one of x that a tap over time pairs with a frame of y, and the one of y
  // that it pairs with a frame of x; -1: none.
  SF_INLINE int64_t frame_of_x(int64_t of_y, int64_t tap) const {
    const int64_t t = of_y % out[0] * stride[0] + tap * dilation[0] - padding[0];
    return t < 0 || t >= in[0] ? -1 : of_y / out[0] * in[0] + t;
  }
  SF_INLINE int64_t frame_of_y(int64_t of_x, int64_t tap) const {
    const int64_t t = of_x % in[0] + padding[0] - tap * dilation[0];
    if (t < 0 || t % stride[0] != 0 || t / stride[0] >= out[0]) return -1;
    return of_x / in[0] * out[0] + t / stride[0];
  }
};

}  // namespace SF_ISA
}  // namespace sf
