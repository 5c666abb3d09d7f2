// 1x1 convolutions in float32: pixels that are channels-last are the rows of a matrix,
// and the weight lies as a Linear layer's does.
// At 320 to 1280 channels of an Intel Xeon's 2 cores: 90 % of a large product's rate,
// where oneDNN's direct algorithm has 60 to 80 %.
// Included only by *.cpu.cpp files; everything lives in namespace sf::SF_ISA.
#pragma once
#include "scaffolding/ops/conv/pointwise.h"
#include "scaffolding/ops/matmul/few_rows.h"

namespace sf {
namespace SF_ISA {

SF_INLINE bool is_product_of_pixels(const ConvForward& f) {
  return f.x.dtype == kFloat32 && f.y.numel() > 0 && is_pointwise(f);
}

inline void multiply_pixels(const ConvForward& f) {
  const int64_t channels = f.x.sizes[1], columns = f.weight.sizes[0];
  Epilogue e{};
  e.c = f.y.data, e.c_row = columns, e.c_type = kFloat32;
  e.act = f.act, e.alpha = 1;
  if (f.bias) e.bias = f.bias.data, e.bias_type = f.bias.dtype;
  if (f.residual) e.residual = f.residual.data, e.residual_row = columns, e.residual_type = kFloat32;
  multiply<MulF32>(Product<MulF32, float>{f.y.numel() / columns, columns, channels, f.x.as<const float>(), channels, 1,
                                          f.weight.as<const float>(), f.weight.strides[1], f.weight.strides[0], e});
}

}  // namespace SF_ISA
}  // namespace sf
