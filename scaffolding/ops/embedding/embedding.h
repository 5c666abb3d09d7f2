// Looking up rows of a table by number.
#pragma once
#include "scaffolding/core/tensor.h"

namespace sf {

// Rows of weight[V, D] by number: input[...] -> [..., D]. Numbers outside [0, V) are an IndexError.
// The row padding_idx (negative: from the end) gets no gradient. Gradients of equal numbers are summed in float32 or
// wider, in the order of input, so that results are the same from run to run;
// scale_grad_by_freq divides them by how many there are.
Tensor embedding(const Tensor& input, const Tensor& weight, std::optional<int64_t> padding_idx = {},
                 bool scale_grad_by_freq = false);
// Rows of weight named by indices whose norm is above max_norm are scaled down to it, in place and off the tape.
Tensor embedding_renorm_(Tensor weight, const Tensor& indices, double max_norm, double norm_type = 2);

}  // namespace sf
