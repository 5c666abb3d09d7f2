// FusedWalk: how the arguments of a fused call lie beside its result.
#pragma once
#include <algorithm>
#include <array>

#include "scaffolding/ops/fuse/kernel.h"

namespace sf {

// The common shape in the order of the result's memory, innermost first,
// neighbouring dimensions merged where all arguments allow it.
struct FusedWalk {
  int ndim = 0;
  int64_t sizes[kMaxDims];
  std::vector<std::array<int64_t, kMaxDims>> strides;  // of each argument, in elements

  explicit FusedWalk(const FusedCall& c) : strides(c.program->arguments.size()) {
    const TensorView &out = c.out, *in = c.in;
    const size_t count = strides.size();
    int order[kMaxDims], dims = 0;
    for (int d = out.ndim - 1; d >= 0; --d)
      if (out.sizes[d] != 1) order[dims++] = d;
    std::stable_sort(order, order + dims, [&](int a, int b) { return out.strides[a] < out.strides[b]; });
    for (int i = 0; i < dims; ++i) {
      int d = order[i];
      bool merge = ndim > 0;
      for (size_t k = 0; merge && k < count; ++k)
        merge = in[k].strides[d] == strides[k][size_t(ndim - 1)] * sizes[ndim - 1];
      if (merge) {
        sizes[ndim - 1] *= out.sizes[d];
        continue;
      }
      sizes[ndim] = out.sizes[d];
      for (size_t k = 0; k < count; ++k) strides[k][size_t(ndim)] = in[k].strides[d];
      ++ndim;
    }
    if (ndim > 0) return;
    ndim = 1;  // one element
    sizes[0] = 1;
    for (auto& s : strides) s[0] = 1;
  }

  // Where an argument's row is that belongs to a row of the result: how many of its elements are before it.
  int64_t before_row(int argument, int64_t row) const {
    const auto& s = strides[size_t(argument)];
    int64_t at = 0;
    for (int d = 1; d + 1 < ndim; ++d) {
      at += row % sizes[d] * s[size_t(d)];
      row /= sizes[d];
    }
    return ndim > 1 ? at + row * s[size_t(ndim - 1)] : at;
  }
  // Whether it lies in memory as the result does.
  bool dense(int argument) const {
    int64_t span = 1;
    for (int d = 0; d < ndim; span *= sizes[d++])
      if (strides[size_t(argument)][size_t(d)] != span) return false;
    return true;
  }
  // An argument's elements first, first + 1, ... of `item` bytes, to `to`.
  void gather(int argument, size_t item, void* to, const void* data, int64_t first, int64_t n) const;
};

}  // namespace sf
