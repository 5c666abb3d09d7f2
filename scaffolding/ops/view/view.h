// Views: other shapes over the same storage, without a copy. Each records its inverse on the tape.
#pragma once
#include "scaffolding/core/tensor.h"

namespace sf {

Tensor reshape(const Tensor& input, const Shape& shape);  // a view when strides allow, else a copy; one -1 is inferred
Tensor view(const Tensor& input, const Shape& shape);     // a view, or a ValueError
Tensor permute(const Tensor& input, const Shape& dims);
Tensor transpose(const Tensor& input, int64_t dim0, int64_t dim1);
Tensor expand(const Tensor& input, const Shape& size);  // -1 keeps a size
Tensor expand_as(const Tensor& input, const Tensor& other);
// Python's rules, step > 0
Tensor slice(const Tensor& input, int64_t dim, std::optional<int64_t> start, std::optional<int64_t> end, int64_t step);
Tensor narrow(const Tensor& input, int64_t dim, int64_t start, int64_t length);
Tensor select(const Tensor& input, int64_t dim, int64_t index);
Tensor unsqueeze(const Tensor& input, int64_t dim);
Tensor squeeze(const Tensor& input, const Shape& dim);  // empty: every dimension of size 1
Tensor flatten(const Tensor& input, int64_t start_dim, int64_t end_dim);
Tensor unflatten(const Tensor& input, int64_t dim, const Shape& sizes);
Tensor as_strided(const Tensor& input, const Shape& size, const Shape& stride, std::optional<int64_t> storage_offset);
Tensor diagonal(const Tensor& input, int64_t offset, int64_t dim1, int64_t dim2);
Tensor movedim(const Tensor& input, const Shape& source, const Shape& destination);
Tensors chunk(const Tensor& input, int64_t chunks, int64_t dim);
Tensors split(const Tensor& input, const Shape& split_size_or_sections, int64_t dim);  // one number: equal pieces
Tensors unbind(const Tensor& input, int64_t dim);

// Sums the broadcast dimensions of a gradient away, so that it has `shape` again.
Tensor sum_to(const Tensor& grad, const Shape& shape);

}  // namespace sf
