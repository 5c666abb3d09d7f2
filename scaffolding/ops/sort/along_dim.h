// Picking and placing elements along one dimension by index: the gradients of sort, topk and max with indices.
// Indices are known to be in range.
#pragma once
#include "scaffolding/core/kernel.h"
#include "scaffolding/core/tensor.h"

namespace sf {

// y[.., j, ..] = input[.., indices[.., j, ..], ..] along dim.
Tensor pick_along(const Tensor& input, const Tensor& indices, int64_t dim);
// y[.., indices[.., j, ..], ..] = input[.., j, ..] along dim, 0 elsewhere; dim has `size` elements. No index twice in a row.
Tensor place_along(const Tensor& input, const Tensor& indices, int64_t dim, int64_t size);

// The dimension is the last of each view. place: out[index] = in, over zeros that are there already; else out = in[index].
struct AlongDim {
  TensorView out, in, indices;
  bool place = false;
};
extern KernelTable<AlongDim> along_dim_kernel;

}  // namespace sf
