// Which calls a Winograd convolution takes, and how it sees them. Included only by *.cpu.cpp files; everything lives in
// namespace sf::SF_ISA.
#pragma once
#include "scaffolding/ops/conv/winograd_convolve.h"

namespace sf {
namespace SF_ISA {

// Where height and width begin in ConvShape's lists.
SF_INLINE int picture_dims(const TensorView& w) { return w.ndim - 4; }
// Frames of the kernel, 1 of pictures.
SF_INLINE int64_t kernel_frames(const TensorView& w) { return w.ndim == 5 ? w.sizes[2] : 1; }

// The kernel's frames that meet one of the `in` frames for one of the `out` frames, `lead` zero frames before them.
struct Taps {
  int64_t first, count, lead;
};
SF_INLINE Taps taps_of(const TensorView& w, const ConvShape& s, int64_t in, int64_t out, bool turned) {
  const int64_t frames = kernel_frames(w);
  if (frames == 1) return {0, 1, 0};
  const int64_t lead = turned ? frames - 1 - s.padding[0] : s.padding[0];
  const int64_t first = max64(0, lead - out + 1), last = min64(frames, in + lead);
  return {first, last - first, lead - first};
}

// A kernel of one frame sees a batch of pictures.
template <class T> SF_INLINE Image<T> image_of(const TensorView& t, const T* data, const TensorView& w) {
  const int d = t.ndim;
  const int64_t frames = d == 5 ? t.sizes[2] : 1, apart = kernel_frames(w) > 1 ? frames : 1;
  return {data, t.sizes[0] * (frames / apart), t.sizes[d - 2], t.sizes[d - 1], t.sizes[1], apart};
}
template <class T> SF_INLINE Filter<T> filter_of(const TensorView& w, bool turned, const Taps& taps) {
  const int64_t* s = w.strides;
  const int d = w.ndim;
  return {w.as<const T>(), turned ? s[1] : s[0], turned ? s[0] : s[1], s[d - 2],   s[d - 1],
          turned,          kernel_frames(w),     d == 5 ? s[2] : 0,    taps.count, taps.first};
}

// In cycles of 16 weights: direct, each output pixel costs 9 multiply-adds of two per cycle. The same for each frame of
// a kernel.
static bool worth(const TensorView& y) {
  const int64_t pictures = y.ndim == 5 ? y.sizes[0] * y.sizes[2] : y.sizes[0], height = y.sizes[y.ndim - 2],
                width = y.sizes[y.ndim - 1];
  return cycles_of<Form4>(pictures, height, width) * 6 < pictures * height * width * 9 / 2 * 5;
}
static bool shape_ok(const TensorView& w, const ConvShape& s) {
  if (w.ndim != 4 && w.ndim != 5) return false;
  for (int i = 0; i < w.ndim - 2; ++i)
    if (s.stride[i] != 1 || s.dilation[i] != 1 || s.padding[i] >= w.sizes[i + 2]) return false;
  return kernel_frames(w) <= kMostTaps && w.sizes[w.ndim - 2] == 3 && w.sizes[w.ndim - 1] == 3 && s.groups == 1 &&
         w.sizes[0] % 16 == 0 && w.sizes[1] % 16 == 0;
}
static bool float_image(const TensorView& t) {
  return !t || (t.dtype == kFloat32 && (t.is_channels_last() || t.is_contiguous()));
}
static bool bf16_image(const TensorView& t) { return !t || (t.dtype == kBFloat16 && t.is_channels_last()); }

}  // namespace SF_ISA
}  // namespace sf
