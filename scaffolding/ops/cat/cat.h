// Tensors put together, repeated and rearranged along dimensions.
#pragma once
#include "scaffolding/core/tensor.h"

namespace sf {

// Dtypes promote. As in torch, 1-D tensors of no elements fit beside any shape.
// Channels-last inputs give a channels-last result.
Tensor cat(const Tensors& tensors, int64_t dim = 0);
Tensor stack(const Tensors& tensors, int64_t dim = 0);  // equal shapes, joined along a new dimension

// the whole tensor repeats[i] times along dimension i (new ones lead)
Tensor repeat(const Tensor& input, const Shape& repeats);
Tensor tile(const Tensor& input, const Shape& dims);  // repeat, with missing leading counts taken as 1
// Entry i of dim repeats[i] times in a row (one number: each as often); without dim the flattened input.
// output_size, when given, must be the sum of repeats: the shape is then known without reading values.
Tensor repeat_interleave(const Tensor& input, const Tensor& repeats, std::optional<int64_t> dim = {},
                         std::optional<int64_t> output_size = {});
// 1-D (or 0-d) tensors to grids, as views. indexing: "ij" (first tensor along dimension 0) or "xy" (along dimension 1).
Tensors meshgrid(const Tensors& tensors, const std::string& indexing = "ij");

Tensor roll(const Tensor& input, const Shape& shifts, const Shape& dims = {});  // without dims: the flattened input
Tensor flip(const Tensor& input, const Shape& dims);  // a copy: strides are never negative here

Tensor tril(const Tensor& input, int64_t diagonal = 0);  // [..., M, N]: zero above the diagonal
Tensor triu(const Tensor& input, int64_t diagonal = 0);  // zero below it

// [...] class numbers -> [..., num_classes] of 0 and 1, int64. num_classes=-1: one more than the largest.
Tensor one_hot(const Tensor& input, int64_t num_classes = -1);

}  // namespace sf
