// Many elements of src become one of the result.
#pragma once
#include "scaffolding/core/tensor.h"

namespace sf {

// input with src reduced into y[index[i][j]][j] for dim=0, and so on. reduce: "sum", "prod", "mean", "amax" or "amin";
// input's own element takes part with include_self, else it stays only where nothing comes. src has input's dtype and
// is at least as large as index. Means of integers are rounded down.
Tensor scatter_reduce(const Tensor& input, int64_t dim, const Tensor& index, const Tensor& src,
                      const std::string& reduce, bool include_self = true);

}  // namespace sf
