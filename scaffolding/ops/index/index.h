// Reading and writing at positions given by tensors. Every position is checked before it is used: IndexError names the
// value and the dimension. Positions are integers of any dtype. Writes at equal positions happen in the order of the
// index, whatever the number of threads: results are the same from run to run.
#pragma once
#include "scaffolding/core/tensor.h"

namespace sf {

// ---- advanced indexing: indices[i] applies to dimension i, an empty Tensor stands for ":". Negative positions count
// from the end; bool and uint8 tensors are masks over as many dimensions as they have. Index tensors broadcast
// together; their shape takes the place of the indexed dimensions,
// or comes first when those are not neighbours (as in NumPy and torch).
Tensor index(const Tensor& input, const Tensors& indices);
// input with values written there (or added, with accumulate). values broadcast to the shape index() would give.
Tensor index_put(const Tensor& input, const Tensors& indices, const Tensor& values, bool accumulate = false);
Tensor& index_put_(Tensor& self, const Tensors& indices, const Tensor& values, bool accumulate = false);

// ---- along one dimension, one position per element
Tensor gather(const Tensor& input, int64_t dim, const Tensor& index);
// src: a tensor at least as large as index, or a number. As in torch, the gradient of src takes positions to be unique.
Tensor scatter(const Tensor& input, int64_t dim, const Tensor& index, const Tensor& src);
Tensor& scatter_(Tensor& self, int64_t dim, const Tensor& index, const Tensor& src);
Tensor scatter_add(const Tensor& input, int64_t dim, const Tensor& index, const Tensor& src);
// broadcasts; no dim: flattened
Tensor take_along_dim(const Tensor& input, const Tensor& indices, std::optional<int64_t> dim = {});

// ---- along one dimension, whole slices; index is 1-D (or 0-d)
Tensor index_select(const Tensor& input, int64_t dim, const Tensor& index);
Tensor index_add(const Tensor& input, int64_t dim, const Tensor& index, const Tensor& source, const Scalar& alpha = 1);
Tensor index_copy(const Tensor& input, int64_t dim, const Tensor& index, const Tensor& source);
Tensor index_fill(const Tensor& input, int64_t dim, const Tensor& index, const Scalar& value);

// ---- by value
Tensor nonzero(const Tensor& input);                            // [count, ndim] positions, int64, in row-major order
Tensor masked_select(const Tensor& input, const Tensor& mask);  // 1-D; both broadcast

}  // namespace sf
