// Which gradients of videos' kernels conv_rows.h takes.
#pragma once
#include "scaffolding/ops/conv/kernel.h"

namespace sf {

SF_INLINE bool is_laid_in_rows(const TensorView& t) {
  return t.dtype == kFloat32 && t.is_channels_last() && t.numel() > 0;
}
// Whole vectors of channels, whatever the instruction set.
SF_INLINE bool has_strips(const TensorView& w, const ConvShape& s) {
  for (int i = 0; i < 3; ++i)
    if (w.ndim != 5 || s.dilation[i] != 1 || s.padding[i] >= w.sizes[i + 2]) return false;
  return w.dtype == kFloat32 && s.groups == 1 && w.sizes[0] % 32 == 0 && w.sizes[1] % 32 == 0;
}
SF_INLINE bool is_over_time(const TensorView& w, const ConvShape& s) {
  return w.sizes[2] > 1 && w.sizes[3] * w.sizes[4] * s.stride[0] * s.stride[1] * s.stride[2] == 1;
}

SF_INLINE bool is_product_of_frames(const ConvBackwardData& f) {
  return is_laid_in_rows(f.dy) && is_laid_in_rows(f.dx) && has_strips(f.weight, f.shape) &&
         is_over_time(f.weight, f.shape);
}
SF_INLINE bool is_sum_of_rows(const ConvBackwardWeights& f) {
  return is_laid_in_rows(f.x) && is_laid_in_rows(f.dy) && has_strips(f.dweight, f.shape) &&
         (!f.dbias || f.dbias.dtype == kFloat32) &&
         (is_over_time(f.dweight, f.shape) || (f.shape.stride[2] > 1 && f.dweight.sizes[4] > 1));
}

}  // namespace sf
