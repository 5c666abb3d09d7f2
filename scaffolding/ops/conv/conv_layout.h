// Activations and weights of a convolution in the memory order that CUDA's kernels want, copied where they have
// another. For one call, on the device's current stream.
#pragma once
#include <optional>

#include "scaffolding/backend/cuda/scratch.h"
#include "scaffolding/core/shape.h"
#include "scaffolding/ops/conv/kernel.h"
#include "scaffolding/ops/copy/kernel.h"

namespace sf::cuda {

inline void copy_on_device(const TensorView& dst, const TensorView& src) {
  Copy c{dst, src};
  copy_kernel.find(dst.device, c)(c);
}

// t's sizes over other memory, dense in the given order of dimensions (the last is the fastest).
inline TensorView dense_in_order(TensorView t, void* data, const int* order) {
  t.data = data;
  int64_t stride = 1;
  for (int i = t.ndim - 1; i >= 0; --i) {
    t.strides[order[i]] = stride;
    stride *= t.sizes[order[i]];
  }
  return t;
}
inline TensorView channels_last(const TensorView& t, void* data) {
  int order[kMaxDims] = {0};
  for (int d = 2; d < t.ndim; ++d) order[d - 1] = d;
  order[t.ndim - 1] = 1;
  return dense_in_order(t, data, order);
}

// An activation in channels-last memory: itself, or a copy. Of a result, finish() brings the copy back.
struct Laid {
  const TensorView& original;
  std::optional<Scratch> memory;
  TensorView view;

  Laid(const TensorView& t, bool has_values) : original(t), view(t) {
    if (t.is_channels_last()) return;
    memory.emplace(t.device, size_t(t.numel()) * size_of(t.dtype));
    view = channels_last(t, memory->as<void>());
    if (has_values) copy_on_device(view, t);
  }
  void finish() const {
    if (memory) copy_on_device(original, view);
  }
};

// weight[o, c, *kernel] as [group][o][tap][c], or as [group][tap][o][c].
struct LaidWeights {
  std::optional<Scratch> memory;
  void* data;
  static void orders(const TensorView& w, int64_t groups, bool tap_first, TensorView& split, int* order) {
    // o becomes two dimensions, group and o: six at most.
    split.data = w.data, split.dtype = w.dtype, split.device = w.device, split.ndim = w.ndim + 1;
    split.sizes[0] = groups, split.strides[0] = w.sizes[0] / groups * w.strides[0];
    for (int d = 0; d < w.ndim; ++d)
      split.sizes[d + 1] = d == 0 ? w.sizes[0] / groups : w.sizes[d], split.strides[d + 1] = w.strides[d];
    int n = 0, last = split.ndim - 1;
    order[n++] = 0;
    if (!tap_first) order[n++] = 1;
    for (int d = 3; d <= last; ++d) order[n++] = d;
    if (tap_first) order[n++] = 1;
    order[n] = 2;
  }
  LaidWeights(const TensorView& w, int64_t groups, bool tap_first) : data(w.data) {
    if (!tap_first && w.is_channels_last()) return;
    TensorView split;
    int order[kMaxDims];
    orders(w, groups, tap_first, split, order);
    memory.emplace(w.device, size_t(w.numel()) * size_of(w.dtype));
    data = memory->as<void>();
    copy_on_device(dense_in_order(split, data, order), split);
  }
};

}  // namespace sf::cuda
