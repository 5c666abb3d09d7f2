// Rows of a table looked up in bags, each of which becomes one row.
#pragma once
#include "scaffolding/core/tensor.h"

namespace sf {

// input: row numbers of weight[V, D], [B, L] for bags of one size; or [P] with offsets[B], where each bag begins (with
// include_last_offset offsets[B + 1], the last being where the last bag ends) -> [B, D]. mode: "sum", "mean" or "max"
// of a bag's rows; an empty bag is 0. per_sample_weights, of input's shape, multiply rows of a sum. Rows padding_idx
// (negative: from the end) do not count. scale_grad_by_freq is for sums and means.
Tensor embedding_bag(const Tensor& input, const Tensor& weight, const Tensor& offsets = {},
                     bool scale_grad_by_freq = false, const std::string& mode = "mean",
                     const Tensor& per_sample_weights = {}, bool include_last_offset = false,
                     std::optional<int64_t> padding_idx = {});

}  // namespace sf
